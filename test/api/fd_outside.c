/* SPDX-License-Identifier: MIT */
/* Descriptors, connections, listeners and datagram sockets of plain threads without a runtime: closing, cancelling and deadlines reach them; and a runtime that
 * starts later has them as its own. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "api/common.h"

/* ---- the ways to wait ---- */

enum { READ, RECV, WAIT, SELECT, SELECT_BOTH, CONN, ACCEPT, DATAGRAM, SECOND_READER, WAYS };

static struct {
    int fd, peer; /* peer: what is written here ends the wait with success, where that is possible */
    weft_conn *conn;
    weft_listener *listener;
    weft_udp *udp;
    weft_chan *never;
} on;

static int dial_later(void *addr) {
    weft_conn *c;
    CHECK_EQ(weft_dial(&c, addr, WEFT_FOREVER), 0);
    return weft_conn_close(c);
}

static void open_way(int way) {
    int fd[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    on.fd = fd[0];
    on.peer = fd[1];
    if (way == CONN || way == SECOND_READER) CHECK_EQ(weft_conn_adopt(&on.conn, on.fd), 0);
    if (way == ACCEPT) CHECK_EQ(weft_tcp_listen(&on.listener, "127.0.0.1:0", NULL), 0);
    if (way == DATAGRAM) CHECK_EQ(weft_udp_bind(&on.udp, "127.0.0.1:0", NULL), 0);
    on.never = weft_chan_new(sizeof(int), 0);
}

/* Negative: an error. */
static int wait_by(int way, weft_deadline deadline) {
    char c[8];
    weft_conn *got = NULL;
    int x, r = 0;
    if (way == READ) r = (int)weft_fd_read(on.fd, c, 1, deadline);
    if (way == RECV) r = (int)weft_fd_recv(on.fd, c, 1, 0, deadline);
    if (way == WAIT) r = weft_fd_wait(on.fd, WEFT_READABLE, deadline);
    if (way == SELECT) r = weft_select(deadline, weft_on_fd(on.fd, WEFT_READABLE));
    if (way == SELECT_BOTH) r = weft_select(deadline, weft_on_recv(on.never, &x, NULL), weft_on_fd(on.fd, WEFT_READABLE));
    if (way == CONN || way == SECOND_READER) r = (int)weft_conn_read(on.conn, c, 1, deadline);
    if (way == ACCEPT) r = weft_accept(on.listener, &got, deadline);
    if (way == DATAGRAM) r = (int)weft_udp_recvfrom(on.udp, c, sizeof c, NULL, deadline);
    if (got) CHECK_EQ(weft_conn_close(got), 0);
    return r;
}

/* What ends it with success. */
static void make_ready(int way) {
    char addr[64];
    weft_addrs at;
    if (way == ACCEPT) {
        CHECK_GT(weft_listener_addr(on.listener, addr, sizeof addr), 0);
        CHECK_EQ(dial_later(addr), 0);
    } else if (way == DATAGRAM) {
        CHECK_GT(weft_udp_addr(on.udp, addr, sizeof addr), 0);
        CHECK_EQ(weft_resolve("127.0.0.1", strrchr(addr, ':') + 1, &at, WEFT_FOREVER), 0);
        CHECK_EQ(weft_udp_sendto(on.udp, "x", 1, &at.at[0], WEFT_FOREVER), 1);
    } else {
        CHECK_EQ(write(on.peer, "xy", 2), 2); /* for two readers */
    }
}

static void close_way(int way) {
    if (way == CONN || way == SECOND_READER)
        CHECK_EQ(weft_conn_close(on.conn), 0);
    else
        CHECK_EQ(weft_fd_close(on.fd), 0);
    if (way == ACCEPT) CHECK_EQ(weft_listener_close(on.listener), 0);
    if (way == DATAGRAM) CHECK_EQ(weft_udp_close(on.udp), 0);
}
static void end_way(void) {
    CHECK_EQ(close(on.peer), 0);
    weft_chan_unref(on.never);
}

/* ---- a plain thread that waits ---- */

typedef struct {
    int way;
    weft_deadline deadline;
    atomic_int tid;
    weft_scope scope;
    int result;
    pthread_t thread;
} waiter;

/* A runtime's end cancels the scopes that are open: this one has none. */
static void *wait_without_scope(void *arg) {
    waiter *w = arg;
    atomic_store(&w->tid, (int)gettid());
    w->result = wait_by(w->way, w->deadline);
    return NULL;
}
static void *wait_in_thread(void *arg) {
    waiter *w = arg;
    weft_scope_begin(&w->scope, NULL);
    (void)wait_without_scope(arg);
    (void)weft_scope_end(&w->scope);
    return NULL;
}
static bool sleeps(void *arg) {
    waiter *w = arg;
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&w->tid));
    FILE *f = atomic_load(&w->tid) ? fopen(path, "re") : NULL;
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    if (f) fclose(f);
    return state == 'S';
}
static void start_wait(waiter *w, int way, weft_deadline deadline, void *(*fn)(void *)) {
    w->way = way;
    w->deadline = deadline;
    atomic_store(&w->tid, 0);
    CHECK_EQ(pthread_create(&w->thread, NULL, fn, w), 0);
}
/* With a deadline the wait may be over before it can be seen. */
static void begin_wait(waiter *w, int way, weft_deadline deadline) {
    start_wait(w, way, deadline, wait_in_thread);
    if (!deadline.ns) test_until(sleeps, w);
}
static int end_wait(waiter *w) {
    CHECK_EQ(pthread_join(w->thread, NULL), 0);
    return w->result;
}

/* ---- each way, each end ---- */

enum { BY_DATA, BY_CANCEL, BY_CLOSE, BY_DEADLINE, ENDS };

static void check_end(int way, int end) {
    waiter w, first;
    open_way(way);
    if (way == SECOND_READER) begin_wait(&first, CONN, WEFT_FOREVER); /* has the turn */
    begin_wait(&w, way, end == BY_DEADLINE ? weft_after(20 * WEFT_MS) : WEFT_FOREVER);
    if (end == BY_DATA) make_ready(way);
    if (end == BY_CANCEL) weft_scope_cancel(&w.scope);
    if (end == BY_CLOSE) {
        if (way == CONN || way == SECOND_READER) weft_conn_ref(on.conn);
        if (way == ACCEPT) weft_listener_ref(on.listener);
        close_way(way);
    }
    int r = end_wait(&w);
    if (end == BY_DATA) CHECK_MSG(r >= 0, "way %d: %s", way, weft_strerror(r));
    if (end == BY_CANCEL) CHECK_MSG(r == WEFT_ECANCELED, "way %d: %s", way, weft_strerror(r));
    if (end == BY_CLOSE && way != DATAGRAM) CHECK_MSG(r == WEFT_ECLOSED, "way %d: %s", way, weft_strerror(r));
    if (end == BY_DEADLINE) CHECK_MSG(r == WEFT_ETIMEDOUT, "way %d: %s", way, weft_strerror(r));
    if (way == SECOND_READER && end != BY_CLOSE && end != BY_DATA) make_ready(way);
    if (way == SECOND_READER) (void)end_wait(&first);
    if (end != BY_CLOSE) close_way(way);
    if (end == BY_CLOSE && (way == CONN || way == SECOND_READER)) weft_conn_unref(on.conn);
    if (end == BY_CLOSE && way == ACCEPT) weft_listener_unref(on.listener);
    end_way();
}

static void check_ends(int end) {
    int fds = test_fds();
    for (int way = 0; way < WAYS; way++)
        if (end != BY_CLOSE || way != DATAGRAM) check_end(way, end); /* a datagram socket has no references */
    test_wait_fds(fds);
}
TEST(fd_outside, a_wait_ends_when_there_is_something) { check_ends(BY_DATA); }
TEST(fd_outside, cancelling_ends_every_wait) { check_ends(BY_CANCEL); }
TEST(fd_outside, closing_ends_every_wait) { check_ends(BY_CLOSE); }
TEST(fd_outside, a_deadline_ends_every_wait) { check_ends(BY_DEADLINE); }

/* No descriptor is left for what wakes a thread up: it looks now and then. */
TEST(fd_outside, cancelling_and_closing_work_without_another_descriptor) {
    struct rlimit before, none;
    for (int end = BY_CANCEL; end <= BY_CLOSE; end++) {
        waiter w;
        open_way(CONN);
        CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        none = before;
        none.rlim_cur = (rlim_t)on.fd; /* those that are open stay so */
        weft_conn_ref(on.conn);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        start_wait(&w, CONN, WEFT_FOREVER, wait_in_thread);
        thread_wait(&w.tid, 1);
        if (end == BY_CANCEL)
            weft_scope_cancel(&w.scope);
        else
            CHECK_EQ(weft_conn_close(on.conn), 0);
        CHECK_EQ(end_wait(&w), end == BY_CANCEL ? WEFT_ECANCELED : WEFT_ECLOSED);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (end == BY_CANCEL) CHECK_EQ(weft_conn_close(on.conn), 0);
        weft_conn_unref(on.conn);
        end_way();
    }
}

/* The reader is closed, and the number is another connection's at once. */
TEST(fd_outside, a_closed_reader_gets_nothing_of_the_next_connection) {
    for (long i = test_scale(300, 20); i > 0; i--) {
        int next[2];
        char c;
        waiter w;
        open_way(CONN);
        weft_conn_ref(on.conn);
        start_wait(&w, CONN, WEFT_FOREVER, wait_in_thread);
        if (i % 2) test_until(sleeps, &w); /* else it may not be there yet */
        CHECK_EQ(weft_conn_close(on.conn), 0);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, next), 0);
        CHECK_EQ(write(next[1], "x", 1), 1);
        CHECK_EQ(end_wait(&w), WEFT_ECLOSED);
        CHECK_EQ(read(next[0], &c, 1), 1);
        weft_conn_unref(on.conn);
        for (int k = 0; k < 2; k++) CHECK_EQ(close(next[k]), 0);
        end_way();
    }
}

/* ---- a runtime that starts later ---- */

static atomic_int began;
static int wait_in_task(void *arg) {
    atomic_fetch_add(&began, 1);
    return wait_by((int)(intptr_t)arg, WEFT_FOREVER);
}

/* On one slot, where a task that blocked its thread would keep the others from running. */
static int use_early_one(void *arg) {
    int way = (int)(intptr_t)arg, result = 0;
    weft_task *t;
    atomic_store(&began, 0);
    CHECK_EQ(weft_task_start(&t, wait_in_task, arg, NULL), 0);
    task_wait_parked(&began, 1);
    make_ready(way);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_MSG(result >= 0, "way %d: %s", way, weft_strerror(result));
    char rest[8];
    if (way != ACCEPT && way != DATAGRAM) CHECK_GE(recv(on.fd, rest, sizeof rest, MSG_DONTWAIT), 1);
    CHECK_EQ(weft_task_start(&t, wait_in_task, arg, NULL), 0);
    task_wait_parked(&began, 2);
    weft_task_cancel(t);
    CHECK_EQ(weft_task_join(t, &result, WEFT_FOREVER), 0);
    CHECK_MSG(result == WEFT_ECANCELED, "way %d: %s", way, weft_strerror(result));
    return 0;
}
TEST(fd_outside, what_was_made_before_the_runtime_is_used_by_its_tasks) {
    int fds = test_fds();
    for (int way = 0; way < WAYS; way++) {
        open_way(way);
        CHECK_EQ(run_on(1, use_early_one, as_arg(way)), 0);
        CHECK_EQ(wait_by(way, weft_after(WEFT_MS)), WEFT_ETIMEDOUT); /* and by the thread, when it has gone */
        CHECK_EQ(run_on(1, use_early_one, as_arg(way)), 0);
        close_way(way);
        end_way();
    }
    test_wait_fds(fds);
}

/* It is known not to be ready when the runtime ends. */
static int wait_in_vain(void *arg) {
    open_way((int)(intptr_t)arg);
    CHECK_EQ(wait_by((int)(intptr_t)arg, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    return 0;
}
TEST(fd_outside, what_was_used_by_tasks_is_read_after_the_runtime) {
    for (int way = 0; way < WAYS; way++) {
        CHECK_EQ(run_on(1, wait_in_vain, as_arg(way)), 0);
        make_ready(way);
        CHECK_GE(wait_by(way, WEFT_FOREVER), 0);
        close_way(way);
        end_way();
    }
}

/* A thread waits on while a runtime comes, uses the same descriptor, and goes. */
static int use_the_same(void *arg) {
    (void)arg;
    CHECK_EQ(weft_fd_wait(on.fd, WEFT_WRITABLE, WEFT_FOREVER), WEFT_WRITABLE);
    CHECK_EQ(weft_fd_wait(on.fd, WEFT_READABLE, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    return 0;
}
TEST(fd_outside, a_wait_outlives_a_runtime_that_comes_and_goes) {
    static const int ways[] = {READ, RECV, CONN}; /* a watcher would hear of an edge, and wait on in the runtime */
    for (size_t i = 0; i < COUNT(ways); i++) {
        int way = ways[i];
        waiter w;
        open_way(way);
        start_wait(&w, way, WEFT_FOREVER, wait_without_scope);
        test_until(sleeps, &w);
        CHECK_EQ(run_on(1, use_the_same, NULL), 0);
        make_ready(way);
        CHECK_GE(end_wait(&w), 0);
        close_way(way);
        end_way();
    }
}

/* ---- fork ---- */

static int accept_one(void *arg) {
    weft_conn *c;
    (void)arg;
    int err = weft_accept(on.listener, &c, WEFT_FOREVER);
    return err ? err : weft_conn_close(c);
}
TEST(fd_outside, a_child_serves_a_listener_that_was_made_before_the_fork) {
    int status;
    char addr[64];
    CHECK_EQ(weft_tcp_listen(&on.listener, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_listener_addr(on.listener, addr, sizeof addr), 0);
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        test_forked();
        _exit(run_on(1, accept_one, NULL) == 0 ? 0 : 1);
    }
    CHECK_EQ(dial_later(addr), 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(weft_listener_close(on.listener), 0);
}
