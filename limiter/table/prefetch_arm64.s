#include "textflag.h"

// func fetch(p unsafe.Pointer)
TEXT ·fetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func fetchWrite(p unsafe.Pointer)
TEXT ·fetchWrite(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PSTL1KEEP
	RET

// func fetchPair(p unsafe.Pointer)
TEXT ·fetchPair(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	ADD $48, R0, R1
	ADD $95, R0, R2
	PRFM (R1), PLDL1KEEP
	PRFM (R0), PLDL1KEEP
	PRFM (R2), PLDL1KEEP
	RET
