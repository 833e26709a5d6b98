/* SPDX-License-Identifier: MIT */
/* Floating-point modes that are not plain at a glance (context.h). */
#include "context/context.h"

#if defined(__x86_64__)
enum { MXCSR_FLAGS = 0x3f };
static const weft__fp plain = {WEFT_MXCSR, WEFT_X87};

bool weft__ctx_fp_is_odd(const weft__fp *f) {
    return (f->mxcsr & ~(uint32_t)MXCSR_FLAGS) != plain.mxcsr || f->x87 != plain.x87;
}
#else
static const weft__fp plain = 0;

bool weft__ctx_fp_is_odd(const weft__fp *f) {
    return *f != plain;
}
#endif

void weft__ctx_fp_reset_seen(const weft__fp *f) {
    if (weft__ctx_fp_is_odd(f)) weft__ctx_fp_set(&plain);
}

void weft__ctx_fp_reset(void) {
    weft__fp now;
    weft__ctx_fp_get(&now);
    weft__ctx_fp_reset_seen(&now);
}
