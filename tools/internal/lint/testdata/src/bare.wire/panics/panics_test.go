package panics

func inTests() { panic(1) }
