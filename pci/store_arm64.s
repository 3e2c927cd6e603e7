#include "textflag.h"

// func store32(p *uint32, v uint32)
// DMB OSHST: the descriptors are visible to the device before the doorbell is.
TEXT ·store32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVW v+8(FP), R1
	DMB  $2
	MOVW R1, (R0)
	RET
