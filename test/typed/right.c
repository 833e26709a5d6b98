/* SPDX-License-Identifier: MIT */
/* What compiles, under every flag: elements of all kinds, and types of the list that are sent by pointer. */
#include <weft.h>

struct session {
    int socket;
};
#undef WEFT_NOT_SENDABLE_TYPES
#define WEFT_NOT_SENDABLE_TYPES WEFT_NOT_SENDABLE(struct session) WEFT_NOT_SENDABLE(long double)

typedef int compare(const void *, const void *);
typedef struct {
    char text[80];
} line;
enum color { RED, GREEN };

WEFT_CHAN_TYPE(sessions, struct session *);
WEFT_CHAN_TYPE(timers, weft_timer *);
WEFT_CHAN_TYPE(scopes, weft_scope *);
WEFT_CHAN_TYPE(names, const char *);
WEFT_CHAN_TYPE(functions, compare *);
WEFT_CHAN_TYPE(lines, line);
WEFT_CHAN_TYPE(colors, enum color);
WEFT_CHAN_TYPE(numbers, double);
WEFT_CHAN_TYPE(channels, numbers);
WEFT_CHAN_TYPE(replies, numbers_tx);

int pass(names_rx in, names_tx out, names both);
int pass(names_rx in, names_tx out, names both) {
    const char *v;
    int err = names_rx_recv(in, &v, WEFT_FOREVER);
    if (!err) err = names_tx_send(out, &v, WEFT_FOREVER);
    if (!err) err = names_recv(both, &v, WEFT_POLL);
    return err ? err : names_rx_try_recv(both.rx, &v);
}
