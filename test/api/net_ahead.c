/* SPDX-License-Identifier: MIT */
/* Bytes that a connection has read ahead: never lost, and known to everything that waits for it. */
#include <sys/socket.h>
#include <unistd.h>

#include "api/common.h"

/* A connection, and the other end as a plain socket. */
static weft_conn *conn;
static int peer;

static void open_conn(void) {
    int p[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(weft_conn_adopt(&conn, p[0]), 0);
    peer = p[1];
}
static void close_conn(void) {
    CHECK_EQ(weft_conn_close(conn), 0);
    CHECK_EQ(close(peer), 0);
}
static void put(const char *text) { CHECK_EQ(write(peer, text, strlen(text)), strlen(text)); }
static void read_line(const char *want) {
    char line[64];
    ssize_t n = weft_conn_read_until(conn, line, sizeof line, '\n', NULL, WEFT_FOREVER);
    CHECK_EQ(n, strlen(want));
    CHECK_EQ(memcmp(line, want, (size_t)n), 0);
}
static weft_deadline soon(void) { return weft_after(WEFT_MS); }
/* Has passed: what is in the kernel is read, whatever is known of it, and nothing is waited for. */
static weft_deadline late(void) { return weft_at(1); }

static atomic_int begun, done;

/* ---- read_until ---- */

static int time_out(void *arg) {
    (void)arg;
    char line[64];
    size_t got = 9;
    open_conn();
    put("abc");
    CHECK_EQ(weft_conn_read_until(conn, line, sizeof line, '\n', &got, soon()), WEFT_ETIMEDOUT);
    CHECK_EQ(got, 0);
    CHECK_EQ(weft_conn_read_until(conn, line, sizeof line, '\n', NULL, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_conn_buffered(conn), 3);
    put("def\nx");
    read_line("abcdef\n");
    CHECK_EQ(weft_conn_buffered(conn), 1);
    CHECK_EQ(weft_conn_read_until(conn, line, sizeof line, '\n', &got, soon()), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_conn_read(conn, line, sizeof line, WEFT_FOREVER), 1); /* another kind of read gets it as well */
    CHECK_EQ(line[0], 'x');
    CHECK_EQ(weft_conn_buffered(conn), 0);
    close_conn();
    return 0;
}
TEST(net_ahead, a_late_read_until_consumes_nothing) { run_each(time_out); }

enum { LONG = 50000 };
static char sent[LONG], got_back[LONG];

/* A line that is longer than what is read ahead at first, with time-outs all the way. */
static int long_lines(void *arg) {
    (void)arg;
    size_t got, at = 0;
    for (int i = 0; i < LONG; i++) sent[i] = (char)('a' + i % 23);
    sent[LONG - 1] = '\n';
    open_conn();
    while (at < LONG) {
        size_t n = LONG - at < 777 ? LONG - at : 777;
        CHECK_EQ(write(peer, sent + at, n), n);
        at += n;
        if (at == LONG) break;
        CHECK_EQ(weft_conn_read_until(conn, got_back, LONG, '\n', &got, late()), WEFT_ETIMEDOUT);
        CHECK_EQ(got, 0);
        CHECK_EQ(weft_conn_buffered(conn), at);
    }
    put("rest");
    CHECK_EQ(weft_conn_read_until(conn, got_back, LONG - 1, '\n', &got, WEFT_FOREVER), WEFT_ELIMIT);
    CHECK_EQ(got, LONG - 1);
    CHECK_EQ(memcmp(got_back, sent, LONG - 1), 0);
    read_line("\n");
    CHECK_EQ(weft_conn_read_full(conn, got_back, 4, NULL, WEFT_FOREVER), 4);
    CHECK_EQ(memcmp(got_back, "rest", 4), 0);
    close_conn();
    return 0;
}
TEST(net_ahead, a_long_line_is_not_lost_either) { run_each(long_lines); }

static int read_until_cancelled(void *arg) {
    (void)arg;
    char line[64];
    atomic_fetch_add(&begun, 1);
    CHECK_EQ(weft_conn_read_until(conn, line, sizeof line, '\n', NULL, WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}
static int cancelled(void *arg) {
    (void)arg;
    atomic_store(&begun, 0);
    open_conn();
    put("one\ntw");
    read_line("one\n");
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, read_until_cancelled, NULL), 0);
    task_wait_parked(&begun, 1);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    put("o\n");
    read_line("two\n");
    close_conn();
    return 0;
}
TEST(net_ahead, a_cancelled_read_until_consumes_nothing) { run_each(cancelled); }

static int ended(void *arg) {
    (void)arg;
    char line[64];
    size_t got;
    open_conn();
    put("tail");
    CHECK_EQ(shutdown(peer, SHUT_WR), 0);
    CHECK_EQ(weft_conn_read_until(conn, line, sizeof line, '\n', NULL, WEFT_FOREVER), WEFT_EEOF);
    CHECK_EQ(weft_conn_buffered(conn), 4); /* how many there were could not be told */
    CHECK_EQ(weft_conn_read_until(conn, line, sizeof line, '\n', &got, WEFT_FOREVER), WEFT_EEOF);
    CHECK_EQ(got, 4);
    CHECK_EQ(memcmp(line, "tail", 4), 0);
    CHECK_EQ(weft_conn_read_until(conn, line, sizeof line, '\n', &got, WEFT_FOREVER), 0);
    CHECK_EQ(got, 0);
    close_conn();
    return 0;
}
TEST(net_ahead, the_rest_of_a_stream_is_told_or_kept) { run_each(ended); }

/* ---- releasing ---- */

static int release_some(void *arg) {
    (void)arg;
    char rest[16];
    size_t got = 9;
    open_conn();
    int fd = weft_conn_fd(conn);
    put("CONNECT\nHELLO");
    read_line("CONNECT\n");
    CHECK_EQ(weft_conn_buffered(conn), 5);
    CHECK_EQ(weft_conn_release(conn), WEFT_ELIMIT);
    CHECK_EQ(weft_conn_release_with(conn, rest, 4, &got), WEFT_ELIMIT);
    CHECK_EQ(got, 5);
    CHECK_EQ(weft_conn_read(conn, rest, 1, WEFT_POLL), 1); /* it is as it was */
    CHECK_EQ(weft_conn_release_with(conn, rest, 4, &got), fd);
    CHECK_EQ(got, 4);
    CHECK_EQ(memcmp(rest, "ELLO", 4), 0);
    CHECK_EQ(recv(fd, rest, sizeof rest, MSG_DONTWAIT), -1);
    CHECK_EQ(weft_conn_adopt(&conn, fd), 0);
    weft_conn *gone = weft_conn_ref(conn);
    CHECK_EQ(weft_conn_release_with(conn, rest, sizeof rest, &got), fd); /* there is nothing */
    CHECK_EQ(got, 0);
    CHECK_EQ(weft_conn_buffered(gone), 0);
    weft_conn_unref(gone);
    CHECK_EQ(close(fd) | close(peer), 0);
    return 0;
}
TEST(net_ahead, a_connection_is_not_released_without_its_bytes) { run_each(release_some); }

static int read_line_then(void *want) {
    char line[64];
    atomic_fetch_add(&begun, 1);
    ssize_t n = weft_conn_read_until(conn, line, sizeof line, '\n', NULL, WEFT_FOREVER);
    CHECK_EQ(n, (intptr_t)want);
    return 0;
}
/* Starts a reader that has a part of a line and waits for the rest. */
static void start_reader(weft_scope *s, intptr_t result) {
    atomic_store(&begun, 0);
    open_conn();
    put("a\nbc");
    read_line("a\n");
    weft_scope_begin(s, NULL);
    CHECK_EQ(weft_spawn(s, read_line_then, as_arg(result)), 0);
    task_wait_parked(&begun, 1);
}
static int release_beside_a_reader(void *arg) {
    (void)arg;
    char rest[16];
    size_t got;
    weft_scope s;
    start_reader(&s, 4);
    int fd = weft_conn_fd(conn);
    CHECK_EQ(weft_conn_release(conn), WEFT_ELIMIT); /* the part is in the connection */
    put("d\n");
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(weft_conn_release(conn), fd);
    CHECK_EQ(close(fd) | close(peer), 0);

    start_reader(&s, WEFT_ECLOSED);
    weft_conn *mine = weft_conn_ref(conn);
    fd = weft_conn_fd(conn);
    CHECK_EQ(weft_conn_release_with(conn, rest, sizeof rest, &got), fd);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(got, 2);
    CHECK_EQ(memcmp(rest, "bc", 2), 0);
    weft_conn_unref(mine);
    CHECK_EQ(close(fd) | close(peer), 0);
    return 0;
}
TEST(net_ahead, a_reader_that_waits_with_a_part_of_a_line_loses_nothing) {
    CHECK_EQ(run_on(1, release_beside_a_reader, NULL), 0);
}

/* A plain thread, with a connection of an earlier runtime, waits in the kernel. */
static int open_line(void *arg) {
    (void)arg;
    open_conn();
    put("a\nbc");
    read_line("a\n");
    return 0;
}
static void *read_line_thread(void *arg) {
    (void)read_line_then(as_arg(WEFT_ECLOSED));
    weft_conn_unref(arg);
    return NULL;
}
static bool is_claimed(void *arg) {
    (void)arg;
    return weft_conn_buffered(conn) == 0;
}
TEST(net_ahead, a_thread_without_a_runtime_that_waits_loses_nothing) {
    pthread_t t;
    char rest[16];
    size_t got;
    CHECK_EQ(run_on(1, open_line, NULL), 0);
    int fd = weft_conn_fd(conn);
    CHECK_EQ(pthread_create(&t, NULL, read_line_thread, weft_conn_ref(conn)), 0);
    test_until(is_claimed, NULL);
    CHECK_EQ(weft_conn_release(conn), WEFT_ELIMIT);
    CHECK_EQ(weft_conn_release_with(conn, rest, sizeof rest, &got), fd);
    CHECK_EQ(got, 2);
    CHECK_EQ(memcmp(rest, "bc", 2), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    CHECK_EQ(close(fd) | close(peer), 0);
}

/* ---- a full read that ends in the middle ---- */

static int partial_reads(void *arg) {
    (void)arg;
    char buf[16];
    size_t got;
    open_conn();
    CHECK_EQ(weft_conn_read_full(conn, buf, 4, NULL, soon()), WEFT_ETIMEDOUT); /* nothing had come */
    put("ab");
    CHECK_EQ(weft_conn_read_full(conn, buf, 4, &got, late()), WEFT_ETIMEDOUT);
    CHECK_EQ(got, 2); /* they are ours, */
    put("cd");
    CHECK_EQ(weft_conn_read_full(conn, buf + got, 4 - got, NULL, WEFT_FOREVER), 2); /* and so are the next */
    CHECK_EQ(memcmp(buf, "abcd", 4), 0);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_POLL), WEFT_EAGAIN);
    put("ef");
    CHECK_EQ(weft_conn_read_full(conn, buf, 4, NULL, late()), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE); /* it fails at once */
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(conn, WEFT_READABLE)), 0);
    put("gh\n");
    CHECK_EQ(weft_conn_read(conn, buf, 1, WEFT_FOREVER), WEFT_EBROKEN);
    CHECK_EQ(weft_conn_read_full(conn, buf, 1, &got, WEFT_FOREVER), WEFT_EBROKEN);
    CHECK_EQ(weft_conn_read_until(conn, buf, sizeof buf, '\n', &got, WEFT_FOREVER), WEFT_EBROKEN);
    CHECK_EQ(weft_conn_write(conn, "x", 1, WEFT_FOREVER), 1); /* the other side goes on */
    close_conn();

    open_conn();
    put("ab");
    CHECK_EQ(shutdown(peer, SHUT_WR), 0);
    CHECK_EQ(weft_conn_read_full(conn, buf, 4, NULL, WEFT_FOREVER), WEFT_EEOF);
    CHECK_EQ(weft_conn_read(conn, buf, 1, WEFT_FOREVER), WEFT_EBROKEN); /* no end that looks like a good one */
    close_conn();
    return 0;
}
TEST(net_ahead, a_full_read_that_cannot_tell_what_it_got_breaks_its_side) { run_each(partial_reads); }

/* ---- waiting for a connection ---- */

static int wait_for_it(void *arg) {
    (void)arg;
    char c;
    open_conn();
    CHECK_EQ(weft_conn_wait(conn, 0, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE | WEFT_HANGUP, WEFT_FOREVER), WEFT_EINVAL);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, soon()), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE | WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
    put("a\nb");
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE);
    read_line("a\n");
    int fd = weft_conn_fd(conn);
    for (int i = 0; i < 2; i++) { /* nothing is consumed */
        CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_POLL), WEFT_READABLE);
        CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE | WEFT_WRITABLE, WEFT_FOREVER), WEFT_READABLE | WEFT_WRITABLE);
        CHECK_EQ(weft_select(WEFT_POLL, weft_on_conn(conn, WEFT_READABLE)), 0);
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(conn, WEFT_READABLE)), 0);
    }
    CHECK_EQ(weft_fd_wait(fd, WEFT_READABLE, WEFT_POLL), WEFT_READABLE); /* by its number, too */
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_fd(fd, WEFT_READABLE)), 0);
    CHECK_EQ(weft_conn_read(conn, &c, 1, WEFT_POLL), 1);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_conn(conn, WEFT_READABLE)), WEFT_EAGAIN);
    CHECK_EQ(weft_select(soon(), weft_on_conn(conn, WEFT_READABLE)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_select(soon(), weft_on_conn(NULL, WEFT_READABLE), weft_on_conn(conn, 0)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(conn, 64)), WEFT_EINVAL);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(conn, WEFT_READABLE), weft_on_conn(conn, WEFT_WRITABLE)), 1);
    close_conn();
    return 0;
}
TEST(net_ahead, waiting_for_a_connection_knows_what_was_read_ahead) {
    run_each(wait_for_it);
    CHECK_EQ(wait_for_it(NULL), 0); /* on a plain thread, without a runtime */
}

/* Those who wait while another task reads ahead are told of what it leaves. */
static int wait_readable(void *arg) {
    atomic_fetch_add(&begun, 1);
    if (arg)
        CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE);
    else
        CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(conn, WEFT_READABLE)), 0);
    atomic_fetch_add(&done, 1);
    return 0;
}
static int leave_some(void *arg) {
    (void)arg;
    char line[16];
    open_conn();
    put("one\ntwo");
    read_line("one\n");
    CHECK_EQ(weft_sleep_for(WEFT_MS), 0); /* the kernel has told of it, and has no more to tell */
    weft_task *t;
    atomic_store(&begun, 0);
    CHECK_EQ(weft_task_start(&t, read_until_cancelled, NULL, NULL), 0); /* has "two", and waits for more */
    task_wait_parked(&begun, 1);
    weft_scope w;
    weft_scope_begin(&w, NULL);
    atomic_store(&done, 0);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&w, wait_readable, as_arg(i & 1)), 0);
    task_wait_parked(&begun, 5);
    CHECK_EQ(atomic_load(&done), 0); /* the bytes are that reader's */
    CHECK_EQ(weft_conn_buffered(conn), 0);
    weft_task_cancel(t); /* it leaves them */
    CHECK_EQ(weft_scope_end(&w), 0);
    CHECK_EQ(weft_task_join(t, NULL, WEFT_FOREVER), 0);
    CHECK_EQ(weft_conn_read(conn, line, sizeof line, WEFT_POLL), 3);
    close_conn();
    return 0;
}
TEST(net_ahead, those_who_wait_are_told_of_what_a_reader_leaves) { CHECK_EQ(run_on(1, leave_some, NULL), 0); }

static void *wait_readable_thread(void *arg) {
    (void)wait_readable(arg);
    return NULL;
}
static void tell_threads(void) {
    pthread_t t[2];
    char line[16];
    open_conn();
    atomic_store(&begun, 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&t[i], NULL, wait_readable_thread, as_arg(i)), 0);
    thread_wait(&begun, 2);
    put("one\ntwo"); /* they see this, or what is left of it */
    while (weft_conn_read_until(conn, line, sizeof line, '\n', NULL, soon()) < 0) continue;
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_join(t[i], NULL), 0);
    close_conn();
}
TEST(net_ahead, plain_threads_are_told_as_well) {
    tell_threads();
    CHECK_EQ(set_up(2), 0);
    tell_threads();
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

static int close_waited(void *arg) {
    atomic_fetch_add(&begun, 1);
    CHECK_EQ(arg ? weft_conn_wait(conn, WEFT_READABLE, WEFT_FOREVER)
                 : weft_select(WEFT_FOREVER, weft_on_conn(conn, WEFT_READABLE)),
             WEFT_ECLOSED);
    return 0;
}
static int close_it(void *arg) {
    (void)arg;
    atomic_store(&begun, 0);
    open_conn();
    weft_conn *gone = weft_conn_ref(conn);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 4; i++) CHECK_EQ(weft_spawn(&s, close_waited, as_arg(i & 1)), 0);
    task_wait_parked(&begun, 4);
    close_conn();
    CHECK_EQ(weft_scope_end(&s), 0);
    int p[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0); /* the same numbers */
    CHECK_EQ(weft_conn_wait(gone, WEFT_WRITABLE, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(gone, WEFT_WRITABLE)), WEFT_ECLOSED);
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_conn(gone, WEFT_WRITABLE)), WEFT_ECLOSED);
    weft_conn_unref(gone);
    CHECK_EQ(close(p[0]) | close(p[1]), 0);
    return 0;
}
TEST(net_ahead, closing_ends_every_wait_for_a_connection) { CHECK_EQ(run_on(1, close_it, NULL), 0); }

/* The number's next descriptor has nothing ahead. */
static int next_of_its_number(void *arg) {
    (void)arg;
    open_conn();
    int fd = weft_conn_fd(conn);
    put("a\nb");
    read_line("a\n");
    close_conn();
    open_conn();
    CHECK_EQ(weft_conn_fd(conn), fd);
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_fd_wait(fd, WEFT_READABLE, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_select(WEFT_POLL, weft_on_conn(conn, WEFT_READABLE)), WEFT_EAGAIN);
    close_conn();
    return 0;
}
TEST(net_ahead, a_number_used_again_has_nothing_ahead) { CHECK_EQ(run_on(1, next_of_its_number, NULL), 0); }

static int keep_it(void *arg) {
    if (arg) {
        open_conn();
        put("a\nb");
        read_line("a\n");
    }
    CHECK_EQ(weft_conn_wait(conn, WEFT_READABLE, WEFT_POLL), WEFT_READABLE);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_conn(conn, WEFT_READABLE)), 0);
    return 0;
}
TEST(net_ahead, the_next_runtime_knows_what_was_read_ahead) {
    CHECK_EQ(run_on(1, keep_it, as_arg(1)), 0);
    CHECK_EQ(keep_it(NULL), 0); /* between two */
    CHECK_EQ(run_on(2, keep_it, NULL), 0);
    close_conn();
}
