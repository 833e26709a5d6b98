/* SPDX-License-Identifier: MIT */
/* An echo server: echo [ADDRESS [CONNECTIONS]]. A task for each connection, straight-line code. Prints where it listens; with CONNECTIONS it ends after so
 * many, otherwise at Ctrl-C.
 *
 *     build/examples/echo 127.0.0.1:7000 &
 *     socat - TCP:127.0.0.1:7000 */
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

#define SILENCE (30 * WEFT_SECOND) /* a peer that says nothing for so long is cut off */

static int echo(void *arg) {
    weft_conn *c = arg;
    char buf[4096];
    ssize_t n;
    while ((n = weft_conn_read(c, buf, sizeof buf, weft_after(SILENCE))) > 0) {
        if ((n = weft_conn_write(c, buf, (size_t)n, weft_after(SILENCE))) < 0) break;
    }
    if (n < 0) fprintf(stderr, "echo: %s\n", weft_strerror((int)n));
    weft_conn_close(c);
    return 0; /* one that fails is no reason to end the others */
}

static int serve(void *arg) {
    weft_args *a = arg;
    const char *addr = a->argc > 1 ? a->argv[1] : "127.0.0.1:7000";
    long left = a->argc > 2 ? atol(a->argv[2]) : -1;
    char where[WEFT_ADDR_MAX];
    weft_listener *l;
    int err = weft_tcp_listen(&l, addr, NULL);
    if (err < 0) {
        fprintf(stderr, "%s\n", weft_net_error());
        return err;
    }
    weft_listener_addr(l, where, sizeof where);
    printf("%s\n", where);
    fflush(stdout);
    WEFT_SCOPE(connections, .on_error = WEFT_KEEP_GOING) {
        for (; left != 0; left--) {
            weft_conn *c;
            if ((err = weft_accept(l, &c, WEFT_FOREVER)) < 0) break;
            if ((err = weft_spawn(&connections, echo, c)) < 0) weft_conn_close(c);
        }
    }
    weft_listener_close(l);
    return err;
}

WEFT_MAIN(serve)
