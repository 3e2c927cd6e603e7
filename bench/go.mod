module bare.wire/bench

go 1.26.0

require (
	bare.wire v0.0.0
	golang.org/x/sys v0.50.0
)

require github.com/u-root/u-root v0.16.0 // indirect

replace bare.wire => ../
