package wire

// ParseAny is ParseHead without its short way, for tests to hold that against.
func ParseAny(head []byte, frameLen int) (l Layers, err error) {
	err = l.walk(head, max(frameLen, len(head)))
	return l, err
}
