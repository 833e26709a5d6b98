/* SPDX-License-Identifier: MIT */
/* Answers that go together (src/io/depart.h), among tasks that compute, block, sleep, are closed and find no room: every byte, once, where it belongs. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/common.h"
#include "departs.h"
#include "io/depart.h"

enum { CLIENTS = 48, LONGEST = 6000 };

typedef struct {
    weft_conn *c;
    uint64_t random;
} server;
typedef struct {
    weft_conn *c;
    int peer;
    size_t asked;  /* what is to come, */
    uint8_t first; /* and with which byte it begins */
} client;
static client clients[CLIENTS];

static void compute(int64_t ns) {
    for (int64_t end = weft_now() + ns; weft_now() < end;) continue;
}

/* Most answer at once. */
static void do_something(uint64_t *random) {
    switch (test_below(random, 40)) {
    case 0:
        weft_yield();
        break;
    case 1:
        compute(50 * WEFT_US);
        break;
    case 2:
        compute(WEFT_MS);
        break;
    case 3:
        nanosleep(&(struct timespec){0, 300000}, NULL);
        break; /* its slot is taken meanwhile */
    case 4:
        CHECK_EQ(weft_sleep_for(100 * WEFT_US), 0);
        break;
    default:
        break;
    }
}

static int serve(void *arg) {
    server *mine = arg;
    weft_conn *c = mine->c;
    uint64_t random = mine->random;
    char buf[LONGEST];
    free(mine);
    for (;;) {
        ssize_t n = weft_conn_read(c, buf, 1 + test_below(&random, sizeof buf), WEFT_FOREVER);
        if (n > 0) {
            do_something(&random);
            n = weft_conn_write(c, buf, (size_t)n, WEFT_FOREVER);
        }
        if (n > 0) continue;
        CHECK_MSG(n == 0 || n == WEFT_ECLOSED, "%zd", n);
        weft_conn_unref(c);
        return 0;
    }
}

static void begin(weft_scope *s, client *k, uint64_t *random) {
    int fd[2], small = 4096;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    if (test_below(random, 4) == 0) CHECK_EQ(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    *k = (client){.peer = fd[1]};
    CHECK_EQ(weft_conn_adopt(&k->c, fd[0]), 0);
    server *its = malloc(sizeof *its);
    CHECK(its);
    *its = (server){weft_conn_ref(k->c), test_random_from(random)};
    CHECK_EQ(weft_spawn(s, serve, its), 0);
}

static void ask(client *k, uint64_t *random) {
    char buf[LONGEST];
    k->asked = 1 + test_below(random, test_below(random, 8) ? 100 : LONGEST);
    k->first = (uint8_t)test_below(random, 256);
    for (size_t i = 0; i < k->asked; i++) buf[i] = (char)(k->first + i);
    CHECK_EQ(write(k->peer, buf, k->asked), (ssize_t)k->asked);
}

/* All of it, or up to the end: in order, and nothing else. */
static void hear(client *k, bool all) {
    char buf[LONGEST];
    size_t at = 0;
    while (at < k->asked) {
        ssize_t n = weft_fd_recv(k->peer, buf, sizeof buf, 0, WEFT_FOREVER);
        if (!all && (n == 0 || n == -ECONNRESET)) return;
        CHECK_GT(n, 0);
        CHECK_LE(at + (size_t)n, k->asked);
        for (ssize_t i = 0; i < n; i++, at++) CHECK_EQ((uint8_t)buf[i], (uint8_t)(k->first + at));
    }
}

static void end(client *k) {
    CHECK_EQ(weft_conn_close(k->c), 0);
    hear(k, false);
    CHECK_EQ(weft_fd_close(k->peer), 0);
}

static int talk(void *arg) {
    weft_scope s;
    uint64_t random = test_random();
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < CLIENTS; i++) begin(&s, &clients[i], &random);
    for (intptr_t round = 0; round < (intptr_t)arg; round++) {
        for (int i = 0; i < CLIENTS; i++) ask(&clients[i], &random);
        client *gone = &clients[test_below(&random, CLIENTS)];
        for (uint64_t k = test_below(&random, 3); k; k--) weft_yield();
        end(gone); /* maybe while its answer waits for others */
        gone->asked = 0;
        for (int i = 0; i < CLIENTS; i++) hear(&clients[i], true);
        begin(&s, gone, &random); /* of the same number, mostly */
    }
    for (int i = 0; i < CLIENTS; i++) clients[i].asked = 0;
    for (int i = 0; i < CLIENTS; i++) end(&clients[i]);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_stats stats;
    weft_stats_get(&stats);
    printf("%llu answers went together\n", (unsigned long long)stats.poll_departures);
    return 0;
}

/* Also with nobody who minds to be late: they go together whatever happens in between. */
static void check(int workers, long rounds) {
    run_and_close_all(workers, talk, rounds / 4);
    weft__depart_late = HOUR;
    run_and_close_all(workers, talk, rounds);
}
TEST_T(depart_stress, every_byte_once_where_it_belongs_1, 120) { check(1, test_scale(1000, 20)); }
TEST_T(depart_stress, every_byte_once_where_it_belongs_2, 120) { check(2, test_scale(1000, 20)); }
TEST_T(depart_stress, every_byte_once_where_it_belongs_4, 120) { check(4, test_scale(500, 10)); }
TEST_T(depart_stress, every_byte_once_where_it_belongs_8, 120) { check(8, test_scale(500, 10)); }
