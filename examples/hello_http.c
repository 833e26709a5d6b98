/* SPDX-License-Identifier: MIT */
/* A small HTTP/1.1 server with keep-alive, for load generators: hello_http [ADDRESS [CONNECTIONS]].
 *
 *     build/examples/hello_http 127.0.0.1:8080 &
 *     wrk -c 64 -d 5 http://127.0.0.1:8080/ */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <weft.h>

enum { LINE = 2048 };
#define SILENCE (10 * WEFT_SECOND)

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\nHello, world!\n";
static const char last_answer[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\nConnection: close\r\n\r\nHello, world!\n";
static const char refusal[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/* One request, up to its empty line. 1: another may follow; 0: it was the last; an error: there was none. */
static int request(weft_conn *c) {
    char line[LINE];
    weft_deadline limit = weft_after(SILENCE); /* for the whole of it: a peer that sends a byte a second does not hold us up */
    int again = 1;
    for (int at = 0;; at++) {
        ssize_t n = weft_conn_read_until(c, line, sizeof line - 1, '\n', NULL, limit);
        if (n <= 0) return n < 0 ? (int)n : WEFT_EEOF;
        line[n] = 0;
        if (at == 0 && !strstr(line, " HTTP/1.")) return WEFT_EINVAL;
        if (at == 0 && strstr(line, " HTTP/1.0")) again = 0;
        if (strncasecmp(line, "Connection: close", 17) == 0) again = 0;
        if (line[0] == '\r' || line[0] == '\n') return again;
    }
}

static int talk(void *arg) {
    weft_conn *c = arg;
    int r;
    do {
        r = request(c);
        const char *text = r > 0 ? answer : r == 0 ? last_answer : r == WEFT_EINVAL || r == WEFT_ELIMIT ? refusal : NULL;
        if (!text || weft_conn_write(c, text, strlen(text), weft_after(SILENCE)) < 0) break;
    } while (r > 0);
    weft_conn_close(c);
    return 0;
}

static int serve(void *arg) {
    weft_args *a = arg;
    long left = a->argc > 2 ? atol(a->argv[2]) : -1;
    char where[WEFT_ADDR_MAX];
    weft_listener *l;
    int err = weft_tcp_listen(&l, a->argc > 1 ? a->argv[1] : "127.0.0.1:8080", NULL);
    if (err < 0) {
        fprintf(stderr, "%s\n", weft_net_error());
        return err;
    }
    weft_listener_addr(l, where, sizeof where);
    printf("http://%s/\n", where);
    fflush(stdout);
    WEFT_SCOPE(connections, .on_error = WEFT_KEEP_GOING) {
        for (; left != 0; left--) {
            weft_conn *c;
            if ((err = weft_accept(l, &c, WEFT_FOREVER)) < 0) break;
            if ((err = weft_spawn(&connections, talk, c)) < 0) weft_conn_close(c);
        }
    }
    weft_listener_close(l);
    return err;
}

WEFT_MAIN(serve)
