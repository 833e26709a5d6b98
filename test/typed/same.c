/* SPDX-License-Identifier: MIT */
/* Compiled twice, with typed channels and (UNTYPED) with those of chan.h: tools/check-typed compares the instructions. */
#include <weft.h>

typedef struct {
    int64_t key;
    void *value;
} pair;
typedef struct {
    char text[65536];
} page;

WEFT_CHAN_TYPE(ints, int);
WEFT_CHAN_TYPE(pairs, pair);
WEFT_CHAN_TYPE(pages, page);

#ifdef UNTYPED
#define CHAN(name) weft_chan *
#define TX(name) weft_chan *
#define RX(name) weft_chan *
#define CALL(name, op, ...) weft_chan_##op(__VA_ARGS__)
#define CALL_TX(name, op, ...) weft_chan_##op(__VA_ARGS__)
#define CALL_RX(name, op, ...) weft_chan_##op(__VA_ARGS__)
#define ON(name, op, ...) weft_on_##op(__VA_ARGS__)
#define NEW(name, capacity) weft_chan_new(sizeof(name##_elem), capacity)
#define TX_OF(c) (c)
#define RX_OF(c) (c)
#else
#define CHAN(name) name
#define TX(name) name##_tx
#define RX(name) name##_rx
#define CALL(name, op, ...) name##_##op(__VA_ARGS__)
#define CALL_TX(name, op, ...) name##_tx_##op(__VA_ARGS__)
#define CALL_RX(name, op, ...) name##_rx_##op(__VA_ARGS__)
#define ON(name, op, ...) name##_on_##op(__VA_ARGS__)
#define NEW(name, capacity) name##_new(capacity)
#define TX_OF(c) ((c).tx)
#define RX_OF(c) ((c).rx)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FUNCTIONS(name)                                                                                                        \
    void name##_makes(CHAN(name) * c, size_t n) { *c = NEW(name, n); }                                                         \
    void name##_refers(CHAN(name) * c) { *c = CALL(name, ref, *c); }                                                           \
    void name##_drops(CHAN(name) c) { CALL(name, unref, c); }                                                                  \
    int name##_sends(CHAN(name) c, name##_elem *v, weft_deadline d) { return CALL(name, send, c, v, d); }                      \
    int name##_receives(CHAN(name) c, name##_elem *v, weft_deadline d) { return CALL(name, recv, c, v, d); }                   \
    int name##_tries(CHAN(name) c, name##_elem *v) { return CALL(name, try_send, c, v) + CALL(name, try_recv, c, v); }         \
    int name##_closes(CHAN(name) c) { return CALL(name, close, c); }                                                           \
    size_t name##_asks(CHAN(name) c) { return CALL(name, len, c) + CALL(name, cap, c); }                                       \
    int name##_sends_on(TX(name) c, name##_elem *v, weft_deadline d) { return CALL_TX(name, send, c, v, d); }                  \
    int name##_receives_on(RX(name) c, name##_elem *v, weft_deadline d) { return CALL_RX(name, recv, c, v, d); }               \
    int name##_passes(RX(name) from, TX(name) to) { /* the whole of a stage */                                                 \
        name##_elem v;                                                                                                         \
        int err;                                                                                                               \
        while ((err = CALL_RX(name, recv, from, &v, WEFT_FOREVER)) == 0)                                                       \
            if ((err = CALL_TX(name, send, to, &v, WEFT_FOREVER)) < 0) break;                                                  \
        CALL_TX(name, close, to);                                                                                              \
        return err;                                                                                                            \
    }                                                                                                                          \
    int name##_splits(CHAN(name) c) { return name##_passes(RX_OF(c), TX_OF(c)); }                                              \
    int name##_selects(CHAN(name) a, CHAN(name) b, name##_elem *v, bool *open, weft_deadline d) {                              \
        return weft_select(d, ON(name, recv, a, v, open), ON(name, send, b, v));                                               \
    }

FUNCTIONS(ints)
FUNCTIONS(pairs)
FUNCTIONS(pages)

/* Values that stand in registers before they are sent. */
int counts(CHAN(ints) c) {
    int err = 0;
    for (int i = 0; i < 10 && !err; i++) err = CALL(ints, send, c, &i, WEFT_FOREVER);
    return err;
}
int adds(CHAN(ints) c) {
    int v, sum = 0;
    while (CALL(ints, recv, c, &v, WEFT_FOREVER) == 0) sum += v;
    return sum;
}

#ifdef __cplusplus
}
#endif
