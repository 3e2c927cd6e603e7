//go:build !race

package nictest

const raceBuild = false
