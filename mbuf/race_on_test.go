//go:build race

package mbuf

const hasRace = true
