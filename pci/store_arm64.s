#include "textflag.h"

// DMB OSHST ($2): the descriptors are visible to the device before the doorbell is. DMB OSHLD ($1): what is read after a
// register is not older than the register.

// func store32(p *uint32, v uint32)
TEXT ·store32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVW v+8(FP), R1
	DMB  $2
	MOVW R1, (R0)
	RET

// func store16(p *uint16, v uint16)
TEXT ·store16(SB), NOSPLIT, $0-10
	MOVD p+0(FP), R0
	MOVH v+8(FP), R1
	DMB  $2
	MOVH R1, (R0)
	RET

// func store8(p *uint8, v uint8)
TEXT ·store8(SB), NOSPLIT, $0-9
	MOVD p+0(FP), R0
	MOVB v+8(FP), R1
	DMB  $2
	MOVB R1, (R0)
	RET

// func load16(p *uint16) uint16
TEXT ·load16(SB), NOSPLIT, $0-10
	MOVD  p+0(FP), R0
	MOVHU (R0), R1
	DMB   $1
	MOVH  R1, ret+8(FP)
	RET

// func load8(p *uint8) uint8
TEXT ·load8(SB), NOSPLIT, $0-9
	MOVD  p+0(FP), R0
	MOVBU (R0), R1
	DMB   $1
	MOVB  R1, ret+8(FP)
	RET
