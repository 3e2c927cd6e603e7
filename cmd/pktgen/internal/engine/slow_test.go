//go:build race || mbufcheck

package engine

// slower is by how much runs are cut down where every buffer is watched.
const slower = 8
