/* SPDX-License-Identifier: MIT */
/* A proxy between TCP and Unix sockets, in any combination: proxy LISTEN TARGET [CONNECTIONS]. When one side ends its half, the other half goes on.
 * Ctrl-C, or the end of so many connections, ends it in good order: no new connections, and those there are have GRACE to end.
 *
 *     proxy 127.0.0.1:7002 unix:/run/service.sock */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <weft.h>

#define GRACE (5 * WEFT_SECOND)
#define PATIENCE (10 * WEFT_SECOND) /* for the target to answer */

typedef struct {
    weft_conn *from, *to;
} way;

/* One direction, until its end; the end is passed on. */
static int pump(void *arg) {
    way *w = arg;
    char buf[16384];
    ssize_t n;
    while ((n = weft_conn_read(w->from, buf, sizeof buf, WEFT_FOREVER)) > 0)
        if ((n = weft_conn_write(w->to, buf, (size_t)n, WEFT_FOREVER)) < 0) return (int)n;
    if (n == 0) weft_conn_shutdown(w->to, SHUT_WR);
    return (int)n; /* an error ends the other direction too: the scope is cancelled */
}

static const char *target;
static weft_waitgroup busy; /* connections that there are */

static int carry(void *arg) {
    weft_conn *near = arg, *far;
    if (weft_dial(&far, target, weft_after(PATIENCE)) < 0) {
        fprintf(stderr, "proxy: %s\n", weft_net_error());
    } else {
        way out = {near, far}, back = {far, near};
        weft_scope s;
        weft_scope_begin(&s, NULL);
        weft_spawn(&s, pump, &out);
        weft_spawn(&s, pump, &back);
        weft_scope_end(&s);
        weft_conn_close(far);
    }
    weft_conn_close(near);
    weft_waitgroup_done(&busy);
    return 0;
}

static int signals[2]; /* a pipe: Ctrl-C comes as a byte in it */

static void on_signal(int sig) {
    char c = (char)sig;
    ssize_t n = write(signals[1], &c, 1); /* nothing else is allowed here */
    (void)n;
}

static int watch_signals(void *door) {
    char c;
    if (weft_fd_read(signals[0], &c, 1, WEFT_FOREVER) == 1) weft_scope_cancel(door);
    return 0;
}

/* Takes connections until Ctrl-C, or so many. `door` is a scope for the accepting alone, so that cancelling it lets the connections go on. */
static void take(weft_listener *l, weft_scope *connections, long left) {
    weft_scope door;
    weft_conn *c;
    weft_scope_begin(&door, NULL);
    weft_spawn(&door, watch_signals, &door);
    for (; left != 0 && weft_accept(l, &c, WEFT_FOREVER) == 0; left--) {
        weft_waitgroup_add(&busy, 1);
        if (weft_spawn(connections, carry, c) == 0) continue;
        weft_waitgroup_done(&busy);
        weft_conn_close(c);
    }
    weft_scope_cancel(&door);
    weft_scope_end(&door);
}

static int run(void *arg) {
    weft_args *a = arg;
    char where[WEFT_ADDR_MAX];
    weft_listener *l;
    if (a->argc < 3) {
        fprintf(stderr, "usage: proxy LISTEN TARGET [CONNECTIONS]\n");
        return 2;
    }
    target = a->argv[2];
    if (weft_tcp_listen(&l, a->argv[1], NULL) < 0) {
        fprintf(stderr, "%s\n", weft_net_error());
        return 1;
    }
    if (pipe(signals) < 0) return -errno;
    signal(SIGINT, on_signal);
    weft_listener_addr(l, where, sizeof where);
    printf("%s\n", where);
    fflush(stdout);
    weft_scope connections;
    weft_scope_begin(&connections, &(weft_scope_opts){.on_error = WEFT_KEEP_GOING});
    take(l, &connections, a->argc > 3 ? atol(a->argv[3]) : -1);
    weft_listener_close(l);
    if (weft_waitgroup_wait(&busy, weft_after(GRACE)) < 0) weft_scope_cancel(&connections);
    int err = weft_scope_end(&connections);
    weft_fd_close(signals[0]);
    weft_fd_close(signals[1]);
    printf("ended in good order\n");
    return err;
}

WEFT_MAIN(run)
