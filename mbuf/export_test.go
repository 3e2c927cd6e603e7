package mbuf

// RaceBuild is for the tests that look from outside.
const RaceBuild = hasRace
