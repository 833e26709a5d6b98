/* SPDX-License-Identifier: MIT */
/* Descriptors whose numbers other code closes with close(2), as libraries do: the next descriptor
 * of the number works without a word to weft. */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/wait.h>

#include "api/common.h"

enum { NUMBER = 150 }; /* nothing else gets it */

/* The kinds of descriptor that have the number one after the other. */
enum { UNIX_SOCKET, TCP_SOCKET, PIPE, KINDS };
static int number_peer; /* what is written here can be read from NUMBER */

static void put_at_number(int fd) {
    CHECK_EQ(dup2(fd, NUMBER), NUMBER); /* closes what had it before */
    CHECK_EQ(close(fd), 0);
}

static int tcp_listener(struct sockaddr_in *at) {
    socklen_t len = sizeof *at;
    int l = socket(AF_INET, SOCK_STREAM, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK_GE(l, 0);
    CHECK_EQ(bind(l, (struct sockaddr *)at, len), 0);
    CHECK_EQ(listen(l, 8), 0);
    CHECK_EQ(getsockname(l, (struct sockaddr *)at, &len), 0);
    return l;
}

static void tcp_pair(int fd[2]) {
    struct sockaddr_in at;
    int l = tcp_listener(&at);
    fd[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(fd[1], (struct sockaddr *)&at, sizeof at), 0);
    CHECK_GE(fd[0] = accept(l, NULL, NULL), 0);
    CHECK_EQ(close(l), 0);
}

/* A new descriptor of this kind at NUMBER, as a library would have it. */
static void library_opens(int kind) {
    int fd[2];
    if (kind == UNIX_SOCKET) CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    if (kind == TCP_SOCKET) tcp_pair(fd);
    if (kind == PIPE) CHECK_EQ(pipe(fd), 0);
    put_at_number(fd[0]);
    number_peer = fd[1];
}
static void library_closes(void) {
    CHECK_EQ(close(NUMBER), 0);
    CHECK_EQ(close(number_peer), 0);
}

static atomic_int began;
static int put_byte_when_begun(void *arg) {
    (void)arg;
    task_wait_parked(&began, 1);
    CHECK_EQ(write(number_peer, "x", 1), 1);
    return 0;
}

/* The ways to wait for a byte at NUMBER, and to take it. */
enum { BY_WAIT, BY_READ, BY_RECV, BY_SELECT, BY_LARGE_SELECT, WAYS };
static void take_byte(int way, int kind) {
    char c = 0;
    weft_deadline d = weft_after(HOUR);
    weft_case k[40];
    for (size_t i = 0; i < COUNT(k); i++) k[i] = weft_on_fd(-1, WEFT_READABLE);
    k[33] = weft_on_fd(NUMBER, WEFT_READABLE);
    atomic_store(&began, 1);
    if (way == BY_WAIT) CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, d), WEFT_READABLE);
    if (way == BY_SELECT) CHECK_EQ(weft_select(d, weft_on_fd(NUMBER, WEFT_READABLE)), 0);
    if (way == BY_LARGE_SELECT) CHECK_EQ(weft_selectv(k, COUNT(k), d), 33);
    if (way == BY_RECV && kind != PIPE)
        CHECK_EQ(weft_fd_recv(NUMBER, &c, 1, 0, d), 1);
    else
        CHECK_EQ(weft_fd_read(NUMBER, &c, 1, d), 1);
    CHECK_EQ(c, 'x');
}

/* One descriptor at NUMBER: a byte that is there already, and one that is waited for. */
static void use_number(int way, int kind) {
    weft_scope s;
    library_opens(kind);
    CHECK_EQ(write(number_peer, "x", 1), 1);
    take_byte(way, kind);
    atomic_store(&began, 0);
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, put_byte_when_begun, NULL), 0);
    take_byte(way, kind);
    CHECK_EQ(weft_scope_end(&s), 0);
    library_closes();
}

static int use_kinds(void *arg) {
    (void)arg;
    for (int way = 0; way < WAYS; way++)
        for (int first = 0; first < KINDS; first++)
            for (int then = 0; then < KINDS; then++) {
                use_number(way, first);
                use_number(way, then);
            }
    return 0;
}
TEST(fd_reuse, a_number_is_used_again_by_sockets_and_pipes) { run_each(use_kinds); }

static int use_kinds_waiting_first(void *arg) {
    (void)arg;
    weft_scope s;
    for (int i = 0; i < KINDS * KINDS * 2; i++) {
        library_opens(i % 2 ? i / 2 % KINDS : i / 2 / KINDS);
        atomic_store(&began, 0);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, put_byte_when_begun, NULL), 0);
        take_byte(i % WAYS,
                  i % 2 ? i / 2 % KINDS : i / 2 / KINDS); /* not ready: it is known that the one before was not, either */
        CHECK_EQ(weft_scope_end(&s), 0);
        library_closes();
    }
    return 0;
}
TEST(fd_reuse, the_first_wait_on_the_next_descriptor_is_woken) { run_each(use_kinds_waiting_first); }

static int on_plain_thread(void) {
    for (int i = 0; i < 2 * KINDS; i++) {
        char c;
        library_opens(i % KINDS);
        CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        CHECK_EQ(write(number_peer, "x", 1), 1);
        CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(HOUR)), 1);
        library_closes();
    }
    return 0;
}
TEST(fd_reuse, plain_threads_notice_too) {
    CHECK_EQ(set_up(2), 0);
    CHECK_EQ(on_plain_thread(), 0);
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
}

/* ---- writing ---- */

static void fill(void) {
    static char many[4096];
    while (weft_fd_write(NUMBER, many, sizeof many, WEFT_POLL) > 0) continue;
}
static void drain(int fd) {
    static char many[65536];
    while (weft_fd_read(fd, many, sizeof many, WEFT_POLL) > 0) continue;
}
static int drain_when_begun(void *arg) {
    (void)arg;
    task_wait_parked(&began, 1);
    drain(number_peer);
    return 0;
}
static int write_to_kinds(void *arg) {
    weft_scope s;
    (void)arg;
    for (int i = 0; i < 2 * KINDS; i++) {
        int fd[2];
        if (i % KINDS == PIPE) {
            CHECK_EQ(pipe(fd), 0);
            put_at_number(fd[1]);
            number_peer = fd[0];
        } else {
            library_opens(i % KINDS);
        }
        CHECK_EQ(weft_fd_write(NUMBER, "x", 1, WEFT_FOREVER), 1);
        fill();
        atomic_store(&began, 1);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, drain_when_begun, NULL), 0);
        CHECK_EQ(weft_fd_write(NUMBER, "x", 1, weft_after(HOUR)), 1);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(close(NUMBER), 0); /* full or not */
        CHECK_EQ(weft_fd_close(number_peer), 0);
    }
    return 0;
}
TEST(fd_reuse, a_writer_waits_for_room_at_the_next_descriptor) { run_each(write_to_kinds); }

/* The number of a pipe has become that of a socket whose peer is gone. */
static int write_to_the_dead(void *arg) {
    int fd[2];
    (void)arg;
    CHECK_EQ(pipe(fd), 0);
    put_at_number(fd[1]);
    CHECK_EQ(weft_fd_write(NUMBER, "x", 1, WEFT_FOREVER), 1);
    CHECK_EQ(close(fd[0]), 0);
    library_opens(UNIX_SOCKET);
    CHECK_EQ(close(number_peer), 0);
    CHECK_EQ(weft_fd_write(NUMBER, "x", 1, WEFT_FOREVER), -EPIPE);
    CHECK_EQ(weft_fd_close(NUMBER), 0);
    return 0;
}
TEST(fd_reuse, no_signal_is_raised_by_a_socket_at_a_pipes_number) {
    run_each(write_to_the_dead);
    setenv("WEFT_NO_NOWAIT", "1", 1); /* as on kernels that cannot be asked */
    run_each(write_to_the_dead);
}

/* ---- listeners ---- */

static int connect_later(void *arg) {
    struct sockaddr_in *at = arg;
    task_wait_parked(&began, 1);
    int c = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(c, (struct sockaddr *)at, sizeof *at), 0);
    CHECK_EQ(close(c), 0);
    return 0;
}
static int accept_from_kinds(void *arg) {
    (void)arg;
    for (int i = 0; i < 4; i++) {
        struct sockaddr_in at;
        weft_scope s;
        put_at_number(tcp_listener(&at)); /* it waits in accept(2) unless weft tells it not to */
        CHECK_EQ(weft_fd_accept(NUMBER, NULL, NULL, WEFT_POLL), WEFT_EAGAIN);
        CHECK_EQ(weft_fd_accept(NUMBER, NULL, NULL, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        atomic_store(&began, 1);
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, connect_later, &at), 0);
        int got = weft_fd_accept(NUMBER, NULL, NULL, weft_after(HOUR));
        CHECK_GE(got, 0);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(weft_fd_close(got), 0);
        CHECK_EQ(close(NUMBER), 0);
        if (i == 1) use_number(BY_READ, PIPE);
    }
    return 0;
}
TEST(fd_reuse, an_accept_does_not_wait_in_the_kernel_at_the_next_listener) { run_each(accept_from_kinds); }

/* ---- files, and no descriptor at all ---- */

static int file_and_none(void *arg) {
    char c;
    (void)arg;
    library_opens(UNIX_SOCKET);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    FILE *f = tmpfile();
    CHECK(f && fputs("yz", f) >= 0 && fflush(f) == 0);
    CHECK_EQ(lseek(fileno(f), 0, SEEK_SET), 0);
    CHECK_EQ(dup2(fileno(f), NUMBER), NUMBER);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(HOUR)), 1);
    CHECK_EQ(c, 'y');
    CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, weft_after(HOUR)), WEFT_READABLE);
    CHECK_EQ(close(number_peer), 0);
    library_opens(UNIX_SOCKET);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    library_closes();
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(HOUR)), -EBADF);
    CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, weft_after(HOUR)), -EBADF);
    CHECK_EQ(weft_select(weft_after(HOUR), weft_on_fd(NUMBER, WEFT_READABLE)), -EBADF);
    CHECK_EQ(weft_fd_accept(NUMBER, NULL, NULL, weft_after(HOUR)), -EBADF);
    use_number(BY_READ, UNIX_SOCKET);
    fclose(f);
    return 0;
}
TEST(fd_reuse, a_number_becomes_a_files_and_nothings) { run_each(file_and_none); }

/* ---- the old descriptor lives on ---- */

/* Its events are counted, and wake nothing at NUMBER. The first wait has to park, also under a slow tool:
 * only then the number is checked. */
static void old_one_is_stale(int old_peer) {
    weft_stats before, now;
    char c;
    CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, weft_after(20 * WEFT_MS * test_slow_tools())), WEFT_ETIMEDOUT);
    weft_stats_get(&before);
    CHECK_EQ(write(old_peer, "x", 1), 1);
    do {
        CHECK_EQ(weft_sleep_for(WEFT_MS), 0);
        weft_stats_get(&now);
    } while (now.poll_stale == before.poll_stale);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
}

static int kept_by_dup(void *arg) {
    char c;
    (void)arg;
    for (int kind = 0; kind < KINDS; kind++) {
        library_opens(UNIX_SOCKET);
        int old_peer = number_peer, old = dup(NUMBER);
        CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        library_opens(kind);
        old_one_is_stale(old_peer);
        CHECK_EQ(weft_fd_read(old, &c, 1, WEFT_FOREVER), 1);
        use_number(BY_WAIT, kind);
        CHECK_EQ(weft_fd_close(old), 0);
        CHECK_EQ(close(old_peer), 0);
    }
    return 0;
}
TEST(fd_reuse, an_old_descriptor_that_dup_keeps_does_no_harm) { run_each_watched(kept_by_dup); }

static int kept_by_fork(void *arg) {
    int hold[2], status;
    char c;
    (void)arg;
    library_opens(UNIX_SOCKET);
    int old_peer = number_peer;
    CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(pipe(hold), 0);
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) { /* only until the other end of the pipe is gone */
        close(hold[1]);
        _exit(read(hold[0], &c, 1) == 0 ? 0 : 1);
    }
    CHECK_EQ(close(hold[0]), 0);
    library_opens(TCP_SOCKET);
    old_one_is_stale(old_peer);
    use_number(BY_SELECT, PIPE);
    CHECK_EQ(close(old_peer), 0);
    CHECK_EQ(close(hold[1]), 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    return 0;
}
TEST(fd_reuse, an_old_descriptor_that_a_child_process_keeps_does_no_harm) {
    test_skip_under("what the tools make of a child beside threads is fork.c's subject", NULL);
    run_each_watched(kept_by_fork);
}

static int back_after_forgetting(void *arg) {
    char c;
    (void)arg;
    library_opens(UNIX_SOCKET);
    int old_peer = number_peer, old = dup(NUMBER);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    use_number(BY_READ, PIPE);
    CHECK_EQ(weft_fd_forget(NUMBER), 0);
    put_at_number(old); /* the first one again */
    number_peer = old_peer;
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(write(number_peer, "x", 1), 1);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(HOUR)), 1);
    library_closes();
    return 0;
}
TEST(fd_reuse, a_descriptor_may_come_back_to_a_number_that_was_forgotten) { run_each(back_after_forgetting); }

/* ---- waits that are parked ---- */

static atomic_int waiting;
static int read_closed(void *arg) {
    char c;
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}
static int wait_closed(void *arg) {
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}
static int select_closed(void *arg) {
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_select(WEFT_FOREVER, weft_on_fd(NUMBER, WEFT_READABLE)), WEFT_ECLOSED);
    return 0;
}

/* Two readers (one has the turn), a watcher and a select. */
static void park_all(weft_scope *s) {
    weft_fn *fns[] = {read_closed, read_closed, wait_closed, select_closed};
    atomic_store(&waiting, 0);
    weft_scope_begin(s, NULL);
    for (size_t i = 0; i < COUNT(fns); i++) CHECK_EQ(weft_spawn(s, fns[i], NULL), 0);
    task_wait_parked(&waiting, COUNT(fns));
}

static int next_one_ends_waits(void *arg) {
    (void)arg;
    for (int way = 0; way < WAYS; way++) {
        weft_scope s;
        library_opens(way % 2 ? TCP_SOCKET : UNIX_SOCKET);
        int old_peer = number_peer;
        park_all(&s);
        use_number(way, way % KINDS);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(close(old_peer), 0);
    }
    return 0;
}
TEST(fd_reuse, waits_on_the_old_descriptor_end_when_the_number_comes_back) {
    CHECK_EQ(run_on(1, next_one_ends_waits, NULL), 0);
}

static int forgetting_ends_waits(void *arg) {
    weft_scope s;
    (void)arg;
    library_opens(UNIX_SOCKET);
    park_all(&s);
    CHECK_EQ(weft_fd_forget(NUMBER), 0);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(fcntl(NUMBER, F_GETFD), 0); /* it is open */
    CHECK_EQ(weft_fd_forget(NUMBER), 0); /* once more is as good */
    CHECK_EQ(write(number_peer, "x", 1), 1);
    take_byte(BY_READ, UNIX_SOCKET);
    library_closes();
    CHECK_EQ(weft_fd_forget(NUMBER), 0);
    CHECK_EQ(weft_fd_forget(-1), -EBADF);
    use_number(BY_WAIT, PIPE);
    return 0;
}
TEST(fd_reuse, forgetting_a_number_ends_what_is_parked_there) { CHECK_EQ(run_on(1, forgetting_ends_waits, NULL), 0); }

/* ---- connections ---- */

static int adopt_next(void *arg) {
    char c;
    weft_conn *conn;
    (void)arg;
    for (int i = 0; i < 2; i++) {
        library_opens(TCP_SOCKET);
        CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        library_closes();
        library_opens(TCP_SOCKET);
        CHECK_EQ(weft_conn_adopt(&conn, NUMBER), 0);
        CHECK_EQ(weft_conn_read(conn, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
        CHECK_EQ(write(number_peer, "x", 1), 1);
        CHECK_EQ(weft_conn_read(conn, &c, 1, weft_after(HOUR)), 1);
        CHECK_EQ(weft_conn_close(conn), 0);
        CHECK_EQ(close(number_peer), 0);
    }
    return 0;
}
TEST(fd_reuse, a_connection_adopts_the_next_descriptor) { run_each(adopt_next); }

/* A listener whose queue is full leaves a connect under way. */
static int connect_next(void *arg) {
    struct sockaddr_in at;
    int before[3], l = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof at;
    char c;
    (void)arg;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK_EQ(bind(l, (struct sockaddr *)&at, len), 0);
    CHECK_EQ(listen(l, 0), 0);
    CHECK_EQ(getsockname(l, (struct sockaddr *)&at, &len), 0);
    for (int i = 0; i < 3; i++) {
        before[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(before[i], (struct sockaddr *)&at, len);
    }
    library_opens(UNIX_SOCKET);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    library_closes();
    put_at_number(socket(AF_INET, SOCK_STREAM, 0));
    CHECK_EQ(weft_fd_connect(NUMBER, (struct sockaddr *)&at, len, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(close(l), 0); /* refuses it: an edge that has to reach the next wait */
    int r = weft_fd_wait(NUMBER, WEFT_WRITABLE, weft_after(HOUR));
    CHECK(r & WEFT_WRITABLE);
    CHECK_EQ(close(NUMBER), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(close(before[i]), 0);
    return 0;
}
TEST(fd_reuse, a_connect_waits_at_the_next_descriptor) { run_each(connect_next); }

/* ---- several at once ---- */

enum { CALLERS = 6 };
static int wait_for_byte(void *arg) {
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_fd_wait(NUMBER, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE);
    return 0;
}
static int read_byte(void *arg) {
    char c;
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    CHECK_EQ(weft_fd_read(NUMBER, &c, 1, WEFT_FOREVER), 1);
    return 0;
}
static int come_at_once(void *arg) {
    (void)arg;
    for (long round = test_scale(2000, 50); round > 0; round--) {
        weft_scope s;
        library_opens((int)(round % KINDS));
        atomic_store(&waiting, 0);
        weft_scope_begin(&s, NULL);
        for (int i = 0; i < CALLERS; i++) CHECK_EQ(weft_spawn(&s, i % 2 ? wait_for_byte : read_byte, NULL), 0);
        if (round % 2) task_wait(&waiting, CALLERS);
        for (int i = 0; i < CALLERS; i++) CHECK_EQ(write(number_peer, "xx", 2), 2); /* more than is read: watchers see some */
        CHECK_EQ(weft_scope_end(&s), 0);
        library_closes();
    }
    return 0;
}
TEST(fd_reuse, tasks_on_several_slots_find_the_next_descriptor_at_once) { run_each_watched(come_at_once); }
