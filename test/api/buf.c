/* SPDX-License-Identifier: MIT */
/* Reference-counted buffers (K8). */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "api/common.h"

static atomic_int freed;

static void count_freed(void *data, void *arg) {
    CHECK(data == arg);
    atomic_fetch_add(&freed, 1);
}

TEST(buf, has_the_bytes_that_were_asked_for) {
    for (size_t n = 0; n < 70; n++) {
        weft_buf *b = weft_buf_new(n);
        CHECK(b && weft_buf_data(b));
        CHECK_EQ(weft_buf_len(b), n);
        CHECK_EQ((uintptr_t)weft_buf_data(b) % _Alignof(max_align_t), 0);
        memset(weft_buf_data(b), (int)n, n); /* the sanitizers look */
        weft_buf_unref(b);
    }
    CHECK(!weft_buf_new(SIZE_MAX));
    CHECK(!weft_buf_new(SIZE_MAX - 64));
    weft_buf_unref(NULL);
}

TEST(buf, a_slice_shares_the_bytes_and_keeps_them) {
    weft_buf *b = weft_buf_new(10);
    memcpy(weft_buf_data(b), "0123456789", 10);
    weft_buf *s = weft_buf_slice(b, 2, 6), *t = weft_buf_slice(s, 1, 3), *none = weft_buf_slice(b, 10, 0);
    weft_buf_unref(b);
    weft_buf_unref(s);
    CHECK(weft_buf_len(t) == 3 && !memcmp(weft_buf_data(t), "345", 3));
    CHECK_EQ(weft_buf_len(none), 0);
    weft_buf_unref(none);
    weft_buf_unref(t);
}

TEST(buf, a_slice_that_is_not_inside_is_refused) {
    weft_buf *b = weft_buf_new(10);
    CHECK(!weft_buf_slice(b, 11, 0));
    CHECK(!weft_buf_slice(b, 5, 6));
    CHECK(!weft_buf_slice(b, 5, SIZE_MAX));
    CHECK(!weft_buf_slice(b, SIZE_MAX, 1));
    weft_buf *s = weft_buf_slice(b, 4, 4);
    CHECK(!weft_buf_slice(s, 0, 5)); /* although the bytes are there */
    weft_buf_unref(s);
    weft_buf_unref(b);
}

TEST(buf, foreign_bytes_are_given_back_once_with_the_last_reference) {
    static char bytes[100];
    atomic_store(&freed, 0);
    weft_buf *b = weft_buf_wrap(bytes, sizeof bytes, count_freed, bytes);
    weft_buf *s = weft_buf_slice(b, 50, 10);
    CHECK(weft_buf_data(b) == bytes && weft_buf_data(s) == bytes + 50);
    CHECK(weft_buf_ref(b) == b);
    weft_buf_unref(b);
    weft_buf_unref(b);
    CHECK_EQ(atomic_load(&freed), 0);
    weft_buf_unref(s);
    CHECK_EQ(atomic_load(&freed), 1);
    weft_buf_unref(weft_buf_wrap(bytes, sizeof bytes, NULL, NULL)); /* nobody is told */
    weft_buf_unref(weft_buf_slice(b = weft_buf_wrap(NULL, 0, NULL, NULL), 0, 0));
    weft_buf_unref(b);
}

/* ---- over channels ---- */

enum { BUFS = 400, BYTES = 64 * 1024 };

struct way {
    weft_chan *in, *out;
    _Atomic(void *) where[BUFS]; /* the bytes */
};

/* Passes every second half on, and drops the first. */
static int halve(void *arg) {
    struct way *w = arg;
    weft_buf *b;
    WEFT_CHAN_EACH(w->in, &b) {
        weft_buf *half = weft_buf_slice(b, weft_buf_len(b) / 2, weft_buf_len(b) / 2);
        weft_buf_unref(b);
        CHECK_EQ(weft_chan_send(w->out, &half, WEFT_FOREVER), 0);
    }
    return 0;
}

static void drop(void *elem, void *arg) {
    (void)arg;
    weft_buf_unref(*(weft_buf **)elem);
    atomic_fetch_add(&freed, 1);
}

static int feed(void *arg) {
    struct way *w = arg;
    for (int i = 0; i < BUFS; i++) {
        weft_buf *b = weft_buf_new(BYTES);
        char *bytes = weft_buf_data(b);
        memset(bytes, i, BYTES);
        memcpy(bytes + BYTES / 2, &i, sizeof i);
        atomic_store(&w->where[i], bytes + BYTES / 2);
        CHECK_EQ(weft_chan_send(w->in, &b, WEFT_FOREVER), 0);
    }
    weft_chan_close(w->in);
    return 0;
}

static int pass_on(void *arg) {
    (void)arg;
    static struct way w;
    weft_scope s;
    weft_chan_opts o = {.capacity = 8, .on_undelivered = drop};
    w.in = weft_chan_new(sizeof(weft_buf *), 4);
    w.out = weft_chan_new_opts(sizeof(weft_buf *), &o);
    atomic_store(&freed, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, feed, &w), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft_spawn(&s, halve, &w), 0);
    for (int n = 0; n < BUFS - 5; n++) {
        weft_buf *b;
        int i;
        CHECK_EQ(weft_chan_recv(w.out, &b, WEFT_FOREVER), 0);
        memcpy(&i, weft_buf_data(b), sizeof i);
        CHECK(i >= 0 && i < BUFS && weft_buf_data(b) == atomic_load(&w.where[i])); /* the very same bytes */
        CHECK_EQ(((char *)weft_buf_data(b))[sizeof i], (char)i);
        weft_buf_unref(b);
    }
    CHECK_EQ(weft_scope_end(&s), 0); /* five are left, and there is room for them */
    weft_chan_unref(w.in);
    weft_chan_unref(w.out);
    CHECK_EQ(atomic_load(&freed), 5);
    return 0;
}

TEST(buf, crosses_channels_without_being_copied) { CHECK_EQ(weft_run(pass_on, NULL, &(weft_config){.workers = 2}), 0); }

static int as_payload(void *arg) {
    static char bytes[1000];
    (void)arg;
    weft_chan *c = weft_chan_new(sizeof(weft_payload), 1);
    weft_payload p = {.ptr = bytes, .len = sizeof bytes, .tag = 7, .status = -1}, q = {0};
    CHECK_EQ(weft_chan_send(c, &p, WEFT_FOREVER), 0);
    CHECK_EQ(weft_chan_recv(c, &q, WEFT_FOREVER), 0);
    CHECK(q.ptr == bytes && q.len == sizeof bytes && q.tag == 7 && q.status == -1);
    weft_chan_unref(c);
    return 0;
}

TEST(buf, a_pointer_and_a_length_cross_as_they_are) { CHECK_EQ(weft_run(as_payload, NULL, NULL), 0); }
