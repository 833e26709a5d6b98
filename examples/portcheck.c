/* SPDX-License-Identifier: MIT */
/* Which ports of a host are open: portcheck HOST FIRST LAST [MS]. Dials up to 64 at a time, each with half a second, or as told; shows how far it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft.h>

enum { AT_ONCE = 64, BAR = 40 };

static const char *host;
static int64_t patience = 500 * WEFT_MS;

/* What is known of a port. */
typedef struct {
    int port, err;
} finding;

typedef struct {
    int port;
    weft_chan *found;
} probe;

static int check(void *arg) {
    probe *p = arg;
    char addr[300];
    weft_conn *c = NULL;
    snprintf(addr, sizeof addr, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, p->port);
    finding f = {p->port, weft_dial(&c, addr, weft_after(patience))};
    weft_conn_close(c);
    weft_chan_send(p->found, &f, WEFT_FOREVER);
    return 0;
}

static void bar(int done, int all) {
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r[");
    for (int i = 0; i < BAR; i++) fputc(i * all < done * BAR ? '#' : '.', stderr);
    fprintf(stderr, "] %d of %d", done, all);
    if (done == all) fputc('\n', stderr);
}

struct report {
    weft_chan *found;
    int all, open;
};

/* One task prints, so lines do not mix. */
static int report(void *arg) {
    struct report *r = arg;
    finding f;
    for (int done = 0; done < r->all && weft_chan_recv(r->found, &f, WEFT_FOREVER) == 0; bar(++done, r->all)) {
        if (f.err == 0) {
            printf("%s%d open\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", f.port);
            r->open++;
        } else if (f.err != -ECONNREFUSED && f.err != WEFT_ETIMEDOUT) {
            printf("%d: %s\n", f.port, weft_strerror(f.err));
        }
    }
    return 0;
}

static int run(void *arg) {
    weft_args *a = arg;
    if (a->argc < 4) {
        fprintf(stderr, "usage: portcheck HOST FIRST LAST [MILLISECONDS]\n");
        return 2;
    }
    host = a->argv[1];
    int first = atoi(a->argv[2]), last = atoi(a->argv[3]);
    if (a->argc > 4) patience = atoi(a->argv[4]) * WEFT_MS;
    if (first < 1 || last > 65535 || first > last) return WEFT_EINVAL;
    struct report r = {.found = weft_chan_new(sizeof(finding), AT_ONCE), .all = last - first + 1};
    if (!r.found) return WEFT_ENOMEM;
    int err = 0;
    WEFT_SCOPE(all, .result = &err) {
        weft_spawn(&all, report, &r);
        WEFT_SCOPE(probes, .limit = AT_ONCE) { /* a spawn waits for room */
            for (int port = first; port <= last; port++)
                if (weft_spawn_with(&probes, check, (probe){port, r.found}) < 0) break;
        }
    }
    printf("%d of %d ports open\n", r.open, r.all);
    weft_chan_unref(r.found);
    return err;
}

WEFT_MAIN(run)
