#include "textflag.h"

// func fetch(p unsafe.Pointer)
TEXT ·fetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func fetchPair(p unsafe.Pointer)
TEXT ·fetchPair(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 48(AX)
	PREFETCHT0 (AX)
	PREFETCHT0 95(AX)
	RET
