/* SPDX-License-Identifier: MIT */
/* A layer on top of the socket, with bytes of its own: what it has counts as read ahead. */
#include <sys/socket.h>
#include <unistd.h>

#include "api/common.h"
#include "net/net.h"

/* Receives records of 8 bytes, and gives them on in whatever pieces are asked for. */
enum { RECORD = 8 };
typedef struct {
    const weft__layer *below;
    char bytes[RECORD];
    size_t at, have;
} records;

static ssize_t layer_read(weft_conn *c, void *buf, size_t n, weft_deadline deadline, bool *mine) {
    records *own = c->own;
    while (own->have < RECORD && !own->at) {
        ssize_t r = own->below->read(c, own->bytes + own->have, RECORD - own->have, deadline, mine);
        if (r <= 0) return r;
        own->have += (size_t)r;
    }
    if (n > own->have) n = own->have;
    memcpy(buf, own->bytes + own->at, n);
    own->have -= n;
    own->at = own->have ? own->at + n : 0;
    return (ssize_t)n;
}
static ssize_t layer_write(weft_conn *c, struct iovec *v, int n, weft_deadline deadline, bool *mine) {
    return ((records *)c->own)->below->write(c, v, n, deadline, mine);
}
static int layer_shutdown(weft_conn *c, int how) { return ((records *)c->own)->below->shutdown(c, how); }
static void layer_end(weft_conn *c) { ((records *)c->own)->below->end(c); }
static size_t layer_buffered(weft_conn *c) {
    records *own = c->own;
    return own->at ? own->have : 0; /* of a record that is whole */
}
static const weft__layer layer = {layer_read, layer_write, layer_shutdown, layer_end, layer_buffered};

static int layered(void *arg) {
    (void)arg;
    int p[2];
    weft_conn *c;
    char buf[32];
    size_t got;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(weft_conn_adopt(&c, p[0]), 0);
    records own = {.below = c->layer};
    c->own = &own;
    c->layer = &layer;
    CHECK_EQ(write(p[1], "12345678", RECORD), RECORD);
    CHECK_EQ(weft_conn_read(c, buf, 3, WEFT_FOREVER), 3);
    CHECK_EQ(weft_conn_buffered(c), 5);
    CHECK_EQ(weft_conn_wait(c, WEFT_READABLE, WEFT_POLL), WEFT_READABLE);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(c, WEFT_READABLE)), 0);
    CHECK_EQ(weft_conn_release(c), WEFT_ELIMIT);
    CHECK_EQ(weft_conn_release_with(c, buf, sizeof buf, &got), WEFT_ELIMIT); /* they are the layer's */
    CHECK_EQ(got, 5);
    CHECK_EQ(weft_conn_read_until(c, buf, sizeof buf, '9', NULL, WEFT_POLL),
             WEFT_EAGAIN); /* takes the rest of the record ahead */
    CHECK_EQ(weft_conn_buffered(c), 5);
    CHECK_EQ(write(p[1], "90abcdef", RECORD), RECORD);
    CHECK_EQ(weft_conn_read_until(c, buf, sizeof buf, '9', NULL, WEFT_FOREVER), 6);
    CHECK_EQ(memcmp(buf, "456789", 6), 0);
    CHECK_EQ(weft_conn_buffered(c), 7);
    CHECK_EQ(weft_conn_read_full(c, buf, 7, NULL, WEFT_POLL), 7);
    CHECK_EQ(memcmp(buf, "0abcdef", 7), 0);
    CHECK_EQ(weft_conn_buffered(c), 0);
    CHECK_EQ(weft_conn_wait(c, WEFT_READABLE, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(close(p[1]), 0);
    return 0;
}
TEST(layer, what_a_layer_has_counts_as_read_ahead) { run_each(layered); }
