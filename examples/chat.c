/* SPDX-License-Identifier: MIT */
/* A chat server: chat [ADDRESS [GUESTS]]. What one says, all others hear. Each guest has a task that reads and a channel to be written from; one task, the
 * room, knows all guests, so nothing needs a lock. A guest who does not listen misses what does not fit into his channel, and holds up nobody.
 * With GUESTS it ends when so many have come and gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

enum { LINE = 256, NAME = 16, BACKLOG = 16 };

typedef struct {
    char text[LINE + NAME + 8];
} message;

typedef struct guest {
    weft_conn *conn;
    weft_chan *inbox; /* messages for him */
    char name[NAME];
    struct guest *next;
} guest;

/* What the room is told. */
typedef struct {
    enum { COMES, SAYS, GOES } what;
    guest *who;
    char said[LINE];
} event;

static weft_chan *room_chan;

static void to_all(guest *all, guest *but, const char *fmt, const char *a, const char *b) {
    message m;
    snprintf(m.text, sizeof m.text, fmt, a, b);
    for (guest *g = all; g; g = g->next)
        if (g != but) (void)weft_chan_send(g->inbox, &m, WEFT_POLL); /* full: he misses it */
}

static int room(void *arg) {
    long left = *(long *)arg;
    guest *all = NULL;
    event e;
    while (left != 0 && weft_chan_recv(room_chan, &e, WEFT_FOREVER) == 0) {
        guest *g = e.who;
        if (e.what == COMES) {
            g->next = all;
            all = g;
            to_all(all, g, "* %s has come%s\n", g->name, "");
            message m = {"* welcome\n"};
            (void)weft_chan_send(g->inbox, &m, WEFT_POLL);
        } else if (e.what == SAYS) {
            to_all(all, g, "%s: %s", g->name, e.said);
        } else {
            for (guest **at = &all; *at; at = &(*at)->next)
                if (*at == g) {
                    *at = g->next;
                    break;
                }
            to_all(all, g, "* %s has gone%s\n", g->name, "");
            weft_chan_close(g->inbox); /* his writer ends, when it has written what is left */
            left -= left > 0;
        }
    }
    weft_chan_close(room_chan);
    return 0;
}

static int write_to(void *arg) {
    guest *g = arg;
    message m;
    while (weft_chan_recv(g->inbox, &m, WEFT_FOREVER) == 0)
        if (weft_conn_write(g->conn, m.text, strlen(m.text), weft_after(5 * WEFT_SECOND)) < 0) break;
    return 0;
}

static ssize_t line(guest *g, char *buf, size_t size) {
    ssize_t n = weft_conn_read_until(g->conn, buf, size - 1, '\n', NULL, WEFT_FOREVER);
    if (n > 0) buf[n] = 0;
    return n;
}

static int host(void *arg) {
    guest g = {.conn = arg};
    event e = {.who = &g};
    if (!(g.inbox = weft_chan_new(sizeof(message), BACKLOG))) {
        weft_conn_close(g.conn);
        return 0;
    }
    WEFT_SCOPE(s, .on_error = WEFT_KEEP_GOING) {
        weft_spawn(&s, write_to, &g);
        bool named =
            weft_conn_write(g.conn, "your name? ", 11, weft_after(5 * WEFT_SECOND)) > 0 && line(&g, g.name, sizeof g.name) > 0;
        g.name[strcspn(g.name, "\r\n")] = 0;
        if (!g.name[0]) strcpy(g.name, "nobody");
        e.what = COMES;
        if (weft_chan_send(room_chan, &e, WEFT_FOREVER) == 0) {
            e.what = SAYS;
            while (named && line(&g, e.said, LINE) > 0) weft_chan_send(room_chan, &e, WEFT_FOREVER);
            e.what = GOES;
            weft_shield_begin(weft_after(WEFT_SECOND)); /* the room must know, also when all are sent home */
            weft_chan_send(room_chan, &e, WEFT_FOREVER);
            weft_shield_end();
        } else {
            weft_chan_close(g.inbox);
        }
    }
    weft_conn_close(g.conn);
    weft_chan_unref(g.inbox);
    return 0;
}

static int accept_all(void *arg) {
    weft_listener *l = arg;
    WEFT_SCOPE(guests, .on_error = WEFT_KEEP_GOING) {
        weft_conn *c;
        while (weft_accept(l, &c, WEFT_FOREVER) == 0)
            if (weft_spawn(&guests, host, c) < 0) weft_conn_close(c);
    }
    return 0;
}

static int serve(void *arg) {
    weft_args *a = arg;
    long guests = a->argc > 2 ? atol(a->argv[2]) : -1;
    char where[WEFT_ADDR_MAX];
    weft_listener *l;
    int err = weft_tcp_listen(&l, a->argc > 1 ? a->argv[1] : "127.0.0.1:7001", NULL);
    if (err < 0) {
        fprintf(stderr, "%s\n", weft_net_error());
        return err;
    }
    if (!(room_chan = weft_chan_new(sizeof(event), 0))) return WEFT_ENOMEM;
    weft_listener_addr(l, where, sizeof where);
    printf("%s\n", where);
    fflush(stdout);
    WEFT_SCOPE(s) {
        weft_spawn(&s, accept_all, l);
        room(&guests); /* in this very task */
        weft_scope_cancel(&s);
    }
    weft_listener_close(l);
    weft_chan_unref(room_chan);
    return 0;
}

WEFT_MAIN(serve)
