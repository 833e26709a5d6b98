/* SPDX-License-Identifier: MIT */
/* What desc.c and wait.c share. */
#ifndef WEFT_SRC_IO_INNER_H
#define WEFT_SRC_IO_INNER_H

#include "io/desc.h"

/* Makes the descriptor known to the runtime that runs, and reads its generation. 0 or an error.
 * Caller is inside that runtime. */
int weft__desc_make_known(weft__desc *d, int fd, uint32_t *generation);
/* Makes f's descriptor known to the runtime, if one runs. Returns 1; 0: none runs; WEFT_ECLOSED; or
 * as weft__fd_get. */
WEFT_COLD int weft__desc_know(const weft__fd *f);
/* Leaves a descriptor whose generation has ended: a holder of a turn that did not park, or a guest.
 * The last one closes the number. */
void weft__desc_last_leaves(const weft__fd *f);

#endif
