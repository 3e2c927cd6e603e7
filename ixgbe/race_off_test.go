//go:build !race

package ixgbe_test

const raceBuild = false
