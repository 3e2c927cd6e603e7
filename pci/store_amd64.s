#include "textflag.h"

// Stores are seen in program order on amd64, and loads too: no barrier is needed before a doorbell, nor after a read.

// func store32(p *uint32, v uint32)
TEXT ·store32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), BX
	MOVL BX, (AX)
	RET

// func store16(p *uint16, v uint16)
TEXT ·store16(SB), NOSPLIT, $0-10
	MOVQ p+0(FP), AX
	MOVW v+8(FP), BX
	MOVW BX, (AX)
	RET

// func store8(p *uint8, v uint8)
TEXT ·store8(SB), NOSPLIT, $0-9
	MOVQ p+0(FP), AX
	MOVB v+8(FP), BX
	MOVB BX, (AX)
	RET

// func load16(p *uint16) uint16
TEXT ·load16(SB), NOSPLIT, $0-10
	MOVQ p+0(FP), AX
	MOVW (AX), BX
	MOVW BX, ret+8(FP)
	RET

// func load8(p *uint8) uint8
TEXT ·load8(SB), NOSPLIT, $0-9
	MOVQ p+0(FP), AX
	MOVB (AX), BX
	MOVB BX, ret+8(FP)
	RET
