/* SPDX-License-Identifier: MIT */
/* What desc.c and wait.c share. */
#ifndef WEFT_SRC_IO_INNER_H
#define WEFT_SRC_IO_INNER_H

#include "io/desc.h"

/* Makes the descriptor known to the runtime that runs, and reads its generation. 0 or an error.
 * Caller is inside that runtime. */
int weft__desc_make_known(weft__desc *d, int fd, uint32_t *generation);
/* Does the same on a plain thread, where the runtime may end at any time; sets out->d if there is
 * one. */
WEFT_COLD int weft__desc_get_outside(weft__desc *d, weft__fd *out);
/* Leaves a descriptor whose generation has ended: a holder of a turn that did not park, or a guest.
 * The last one closes the number. */
void weft__desc_last_leaves(const weft__fd *f);

#endif
