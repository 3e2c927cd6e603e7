package mbuf

func inTests(a, b []byte) { copy(a, b) }
