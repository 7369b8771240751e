#include "textflag.h"

// func fetch(p unsafe.Pointer)
TEXT ·fetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func fetchWrite(p unsafe.Pointer)
TEXT ·fetchWrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	RET

// func fetchPair(p unsafe.Pointer)
TEXT ·fetchPair(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 48(AX)
	PREFETCHT0 (AX)
	PREFETCHT0 95(AX)
	RET
