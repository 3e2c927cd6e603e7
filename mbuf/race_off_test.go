//go:build !race

package mbuf

const hasRace = false
