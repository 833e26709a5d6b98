/* SPDX-License-Identifier: MIT */
/* Bytes read ahead under races: reads that are given up at any moment, readers beside those who
 * wait for the connection, a release in the middle of it all. */
#include <sys/socket.h>
#include <unistd.h>

#include "stress/actor.h"

static weft_conn *conn;
static int peer;

static void open_conn(void) {
    int p[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(weft_conn_adopt(&conn, p[0]), 0);
    peer = p[1];
}

/* ---- every byte once, in order, whatever ends the reads ---- */

/* The stream: byte i is byte_at(i); a line ends after each 1 to 200 bytes, some after 9,000. */
enum { LINE_MAX = 9000 };
static char byte_at(uint64_t i) {
    if (i % 50000 > 50000 - LINE_MAX) return 'L';
    return i % 193 == 0 || i % 77 == 3 ? '\n' : (char)('a' + i % 19);
}
static int write_stream(void *arg) {
    uint64_t rnd = test_random(), at = 0, total = (uint64_t)(intptr_t)arg;
    char buf[3000];
    while (at < total) {
        size_t n = 1 + (size_t)test_below(&rnd, test_below(&rnd, 4) ? 40 : sizeof buf);
        if (n > total - at) n = (size_t)(total - at);
        for (size_t i = 0; i < n; i++) buf[i] = byte_at(at + i);
        for (size_t put = 0; put < n;) {
            ssize_t r = weft_fd_write(peer, buf + put, n - put, WEFT_FOREVER);
            CHECK_GT(r, 0);
            put += (size_t)r;
        }
        at += n;
        if (!test_below(&rnd, 3)) weft_yield();
    }
    CHECK_EQ(weft_fd_close(peer), 0);
    return 0;
}
static weft_deadline some_time(uint64_t *rnd) {
    uint64_t k = test_below(rnd, 4);
    return k == 0 ? WEFT_POLL : k == 1 ? weft_at(1) : weft_after((int64_t)test_below(rnd, 60) * WEFT_US);
}
/* One read of some kind: how many bytes it got; -1: the end. */
static ssize_t read_some_way(uint64_t *rnd, char *buf, size_t size) {
    size_t got = 0;
    weft_deadline limit = some_time(rnd);
    ssize_t r;
    switch (test_below(rnd, 4)) {
    case 0:
        r = weft_conn_read(conn, buf, 1 + (size_t)test_below(rnd, 300), limit);
        if (r > 0) got = (size_t)r;
        break;
    case 1:
        r = weft_conn_read_full(conn, buf, 1 + (size_t)test_below(rnd, 300), &got, limit);
        break;
    case 2:
        r = weft_conn_read_until(conn, buf, 1 + (size_t)test_below(rnd, 300), '\n', &got, limit);
        if (r >= 0) got = (size_t)r;
        break;
    default:
        r = weft_conn_read_until(conn, buf, size, '\n', &got, limit);
        if (r > 0) CHECK_EQ(buf[r - 1], '\n');
        if (r >= 0) got = (size_t)r;
    }
    bool ended = r == 0 || (r == WEFT_EEOF && !got);
    CHECK_MSG(r >= 0 || r == WEFT_ETIMEDOUT || r == WEFT_EAGAIN || r == WEFT_ELIMIT || r == WEFT_EEOF, "%zd", r);
    if (r == WEFT_ETIMEDOUT || r == WEFT_EAGAIN) weft_yield();
    return ended ? -1 : (ssize_t)got;
}
static int read_stream(void *arg) {
    static char buf[2 * LINE_MAX];
    uint64_t rnd = test_random(), total = (uint64_t)(intptr_t)arg, at = 0;
    weft_scope s;
    open_conn();
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, write_stream, arg), 0);
    for (ssize_t n; (n = read_some_way(&rnd, buf, sizeof buf)) >= 0;)
        for (ssize_t i = 0; i < n; i++, at++) CHECK_MSG(buf[i] == byte_at(at), "byte %llu", (unsigned long long)at);
    CHECK_EQ(at, total);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_conn_close(conn), 0);
    return 0;
}
static void check_stream(int workers) { run_and_close_all(workers, read_stream, test_scale(2000000, 100000)); }
TEST_T(net_ahead_stress, reads_given_up_at_any_moment_lose_nothing_1, 120) { check_stream(1); }
TEST_T(net_ahead_stress, reads_given_up_at_any_moment_lose_nothing_2, 120) { check_stream(2); }
TEST_T(net_ahead_stress, reads_given_up_at_any_moment_lose_nothing_8, 120) { check_stream(8); }

/* ---- several tasks wait for the connection, and read what there is ---- */

static atomic_long taken;
static weft_chan *over;

static int wait_and_read(void *arg) {
    char buf[64];
    uint64_t rnd = test_random();
    (void)arg;
    for (;;) {
        int none, r = test_below(&rnd, 2)
                          ? weft_select(WEFT_FOREVER, weft_on_recv(over, &none, NULL), weft_on_conn(conn, WEFT_READABLE))
                          : weft_conn_wait(conn, WEFT_READABLE, WEFT_FOREVER);
        CHECK_MSG(r >= 0 || r == WEFT_ECLOSED, "%d", r);
        if (r == WEFT_ECLOSED) return 0;
        ssize_t n = weft_conn_read_until(conn, buf, sizeof buf, '\n', NULL, WEFT_POLL);
        CHECK_MSG(n > 0 || n == WEFT_EAGAIN || n == WEFT_ECLOSED, "%zd", n);
        if (n > 0) atomic_fetch_add(&taken, n);
    }
}
static bool all_taken(void *want) { return atomic_load(&taken) == *(long *)want; }
static int wait_race(void *arg) {
    uint64_t rnd = test_random();
    long put = 0;
    atomic_store(&taken, 0);
    open_conn();
    over = weft_chan_new(sizeof(int), 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, wait_and_read, NULL), 0);
    for (long i = (intptr_t)arg; i > 0; i--) {
        char lines[40];
        size_t n = 2 + (size_t)test_below(&rnd, sizeof lines - 2);
        for (size_t k = 0; k < n; k++) lines[k] = test_below(&rnd, 4) ? 'x' : '\n';
        lines[n - 1] = '\n';
        CHECK_EQ(weft_fd_write(peer, lines, n, WEFT_FOREVER), n);
        put += (long)n;
        if (!test_below(&rnd, 8)) test_task_until(all_taken, &put); /* every line is found by one of those who wait */
    }
    test_task_until(all_taken, &put);
    weft_conn *mine = weft_conn_ref(conn);
    weft_chan_close(over);
    CHECK_EQ(weft_conn_close(conn), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    weft_conn_unref(mine);
    weft_chan_unref(over);
    CHECK_EQ(weft_fd_close(peer), 0);
    return 0;
}
static void check_wait(int workers) { run_and_close_all(workers, wait_race, test_scale(20000, 500)); }
TEST_T(net_ahead_stress, every_line_is_found_by_one_that_waits_1, 120) { check_wait(1); }
TEST_T(net_ahead_stress, every_line_is_found_by_one_that_waits_2, 120) { check_wait(2); }
TEST_T(net_ahead_stress, every_line_is_found_by_one_that_waits_8, 120) { check_wait(8); }

/* ---- a release in the middle ---- */

static int read_until_released(void *arg) {
    weft_conn *c = arg;
    char line[16];
    uint64_t rnd = test_random();
    for (;;) {
        ssize_t n = weft_conn_read_until(c, line, sizeof line, '\n', NULL, some_time(&rnd));
        if (n > 0) atomic_fetch_add(&taken, n);
        if (n == WEFT_ECLOSED) break;
        CHECK_MSG(n > 0 || n == WEFT_ETIMEDOUT || n == WEFT_EAGAIN, "%zd", n);
        if (n < 0) weft_yield();
    }
    weft_conn_unref(c);
    return 0;
}
static int release_race(void *arg) {
    uint64_t rnd = test_random();
    for (long i = (intptr_t)arg; i > 0; i--) {
        char rest[64];
        size_t got = 0;
        long put = 0;
        int fd;
        atomic_store(&taken, 0);
        open_conn();
        weft_scope s;
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, read_until_released, weft_conn_ref(conn)), 0);
        for (uint64_t k = test_below(&rnd, 4); k; k--) {
            CHECK_EQ(write(peer, "ab\ncd\nef", 8), 8);
            put += 8;
            for (uint64_t y = test_below(&rnd, 3); y; y--) weft_yield();
        }
        size_t room = (size_t)test_below(&rnd, 8);
        while ((fd = weft_conn_release_with(conn, rest, room, &got)) == WEFT_ELIMIT) {
            CHECK_GT(got, room);
            room = got;
        }
        CHECK_GE(fd, 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        ssize_t left = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
        CHECK_EQ(atomic_load(&taken) + (long)got + (left > 0 ? left : 0), put);
        CHECK_EQ(close(fd) | close(peer), 0);
    }
    return 0;
}
static void check_release(int workers) { run_and_close_all(workers, release_race, test_scale(10000, 200)); }
TEST_T(net_ahead_stress, a_release_loses_nothing_1, 120) { check_release(1); }
TEST_T(net_ahead_stress, a_release_loses_nothing_2, 120) { check_release(2); }
TEST_T(net_ahead_stress, a_release_loses_nothing_8, 120) { check_release(8); }
