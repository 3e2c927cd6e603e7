//go:build !race

package virtio_test

const raceBuild = false
