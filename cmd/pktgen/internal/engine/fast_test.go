//go:build !race && !mbufcheck

package engine

const slower = 1
