/* SPDX-License-Identifier: MIT */
/* Channels of ints, in a line each. */
#ifndef WEFT_TEST_INTS_H
#define WEFT_TEST_INTS_H

#include "api/common.h"

static inline weft_chan *new_chan(size_t capacity) {
    weft_chan *c = weft_chan_new(sizeof(int), capacity);
    CHECK(c);
    return c;
}

static inline void put(weft_chan *c, int v) { CHECK_EQ(weft_chan_send(c, &v, WEFT_FOREVER), 0); }

static inline int take(weft_chan *c) {
    int v = -1;
    CHECK_EQ(weft_chan_recv(c, &v, WEFT_FOREVER), 0);
    return v;
}

#endif
