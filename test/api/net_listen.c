/* SPDX-License-Identifier: MIT */
/* Listeners: whose files they remove, when their address is free, and what other processes that
 * share the socket notice. */
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/common.h"

/* ---- a directory of our own ---- */

static char dir[64];

static void enter_dir(void) {
    snprintf(dir, sizeof dir, "/tmp/weft-listen-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    CHECK_EQ(chdir(dir), 0);
}
static void leave_dir(void) {
    CHECK_EQ(chdir("/"), 0);
    CHECK_EQ(rmdir(dir), 0); /* nothing was left in it */
}
static void put_file(const char *path) {
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK_GE(fd, 0);
    CHECK_EQ(write(fd, "precious", 8), 8);
    CHECK_EQ(close(fd), 0);
}
static mode_t type_of(const char *path) {
    struct stat st;
    return lstat(path, &st) < 0 ? 0 : st.st_mode & S_IFMT;
}
static void dial_once(const char *addr, int want) {
    weft_conn *c;
    CHECK_EQ(weft_dial(&c, addr, WEFT_FOREVER), want);
    CHECK_EQ(weft_conn_close(c), 0);
}

/* ---- what is in the way ---- */

static int listen_at_files(void *arg) {
    (void)arg;
    weft_listener *l;
    enter_dir();
    put_file("plain");
    CHECK_EQ(weft_tcp_listen(&l, "unix:plain", NULL), -EADDRINUSE);
    CHECK_EQ(type_of("plain"), S_IFREG);
    CHECK_EQ(unlink("plain"), 0);
    CHECK_EQ(mkdir("plain", 0700), 0);
    CHECK_EQ(weft_tcp_listen(&l, "unix:plain", NULL), -EADDRINUSE);
    CHECK_EQ(rmdir("plain"), 0);
    CHECK_EQ(mkfifo("plain", 0600), 0);
    CHECK_EQ(weft_tcp_listen(&l, "unix:plain", NULL), -EADDRINUSE);
    CHECK_EQ(type_of("plain"), S_IFIFO);
    CHECK_EQ(unlink("plain"), 0);
    leave_dir();
    return 0;
}
TEST(net_listen, a_file_that_is_no_socket_is_not_replaced) { run_each(listen_at_files); }

static int listen_at_sockets(void *arg) {
    (void)arg;
    weft_listener *l, *m;
    enter_dir();
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "s"};
    int left = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_EQ(bind(left, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(symlink("s", "link"), 0);
    CHECK_EQ(close(left), 0); /* as after a crash */
    CHECK_EQ(weft_tcp_listen(&l, "unix:link", NULL), -EADDRINUSE);
    CHECK_EQ(type_of("link"), S_IFLNK);
    CHECK_EQ(type_of("s"), S_IFSOCK);
    CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), 0);
    CHECK_EQ(weft_tcp_listen(&m, "unix:s", NULL), -EADDRINUSE); /* it answers */
    dial_once("unix:s", 0);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(type_of("s"), 0);
    int datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK_EQ(bind(datagrams, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), -EADDRINUSE); /* it refuses no connection: it takes none */
    CHECK_EQ(close(datagrams), 0);
    CHECK_EQ(unlink("s") | unlink("link"), 0);
    leave_dir();
    return 0;
}
TEST(net_listen, only_a_socket_that_refuses_connections_is_replaced) { run_each(listen_at_sockets); }

/* ---- whose file is removed ---- */

static int close_beside_another(void *arg) {
    (void)arg;
    weft_listener *l, *m;
    enter_dir();
    CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), 0);
    CHECK_EQ(unlink("s"), 0);
    CHECK_EQ(weft_tcp_listen(&m, "unix:s", NULL), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    dial_once("unix:s", 0);
    CHECK_EQ(weft_listener_close(m), 0);
    CHECK_EQ(type_of("s"), 0);
    CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), 0);
    CHECK_EQ(unlink("s"), 0);
    put_file("s");
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(type_of("s"), S_IFREG);
    CHECK_EQ(unlink("s"), 0);
    leave_dir();
    return 0;
}
TEST(net_listen, closing_removes_the_listeners_own_file_and_no_other) { run_each(close_beside_another); }

static int close_elsewhere(void *arg) {
    (void)arg;
    weft_listener *l, *m;
    enter_dir();
    CHECK_EQ(mkdir("sub", 0700), 0);
    put_file("sub/s");
    CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), 0);
    CHECK_EQ(weft_tcp_listen(&m, "unix:./sub/t", NULL), 0);
    CHECK_EQ(chdir("sub"), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_listener_close(m), 0);
    CHECK_EQ(type_of("../s"), 0);
    CHECK_EQ(type_of("s"), S_IFREG);
    CHECK_EQ(type_of("t"), 0);
    CHECK_EQ(unlink("s"), 0);
    CHECK_EQ(chdir(".."), 0);
    CHECK_EQ(rmdir("sub"), 0);
    leave_dir();
    return 0;
}
TEST(net_listen, a_relative_path_means_the_directory_of_the_listen) { run_each(close_elsewhere); }

/* connect(2) takes no path as long as this one is when it is absolute. */
static int close_in_the_deep(void *arg) {
    (void)arg;
    weft_listener *l;
    char deep[120];
    memset(deep, 'd', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    enter_dir();
    CHECK_EQ(mkdir(deep, 0700), 0);
    CHECK_EQ(chdir(deep), 0);
    CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), 0);
    dial_once("unix:s", 0);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(type_of("s"), 0);
    CHECK_EQ(chdir(dir), 0);
    CHECK_EQ(rmdir(deep), 0);
    leave_dir();
    return 0;
}
TEST(net_listen, a_long_path_is_removed_too) { run_each(close_in_the_deep); }

/* ---- sockets that another process has ---- */

static weft_listener *shared;
static char where[WEFT_ADDR_MAX];
static int from_child[2];

static void share(const char *addr) {
    CHECK_EQ(weft_tcp_listen(&shared, addr, NULL), 0);
    CHECK_GT(weft_listener_addr(shared, where, sizeof where), 0);
    CHECK_EQ(pipe(from_child), 0);
}
/* A process that shares the listener, and knows nothing of weft: tells what poll(2) gave it, or
 * of an accept(2) that failed in spite of it. */
static pid_t start_child(void) {
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid) return pid;
    test_forked();
    struct pollfd p = {.fd = weft_listener_fd(shared), .events = POLLIN};
    while (poll(&p, 1, -1) < 1) continue;
    int got = accept(p.fd, NULL, NULL) < 0 && p.revents == POLLIN ? -errno : p.revents & (POLLIN | POLLHUP);
    _exit(write(from_child[1], &got, sizeof got) == sizeof got ? 0 : 1);
}
static void end_child(pid_t pid, int want) {
    int got = -1, status;
    CHECK_EQ(read(from_child[0], &got, sizeof got), sizeof got);
    CHECK_EQ(got & want, want);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(close(from_child[0]) | close(from_child[1]), 0);
}

static void close_one_of_two(const char *addr) {
    share(addr);
    pid_t pid = start_child();
    CHECK_EQ(weft_listener_close(shared), 0);
    dial_once(where, 0);
    end_child(pid, POLLIN);
}
static void shut_down_both(const char *addr) {
    share(addr);
    pid_t pid = start_child();
    weft_listener_shutdown(shared);
    end_child(pid, POLLHUP);
    weft_conn *c;
    CHECK_EQ(weft_accept(shared, &c, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_fd_accept(weft_listener_fd(shared), NULL, NULL, WEFT_FOREVER), -EINVAL);
    dial_once(where, -ECONNREFUSED);
    CHECK_EQ(weft_listener_close(shared), 0);
}
static void with_and_without_runtime(void (*fn)(const char *)) {
    enter_dir();
    for (int i = 0; i < 2; i++) {
        if (i) CHECK_EQ(set_up(2), 0);
        fn("127.0.0.1:0");
        fn("unix:s");
        (void)unlink("s"); /* the child's, which did not remove it */
        if (i) CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    }
    leave_dir();
}
TEST(net_listen, closing_leaves_the_socket_to_other_processes) { with_and_without_runtime(close_one_of_two); }
TEST(net_listen, shutting_down_ends_it_in_every_process) { with_and_without_runtime(shut_down_both); }

/* A duplicate of the descriptor is to the kernel what another process is. */
static int file_stays_with_the_socket(void *arg) {
    (void)arg;
    weft_listener *l;
    for (int shut = 0; shut < 2; shut++) {
        enter_dir();
        CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), 0);
        int other = dup(weft_listener_fd(l));
        if (shut) weft_listener_shutdown(l);
        CHECK_EQ(weft_listener_close(l), 0);
        CHECK_EQ(type_of("s"), shut ? 0 : S_IFSOCK);
        CHECK_EQ(close(other), 0);
        if (!shut) CHECK_EQ(weft_tcp_listen(&l, "unix:s", NULL), 0); /* what was left is replaced */
        if (!shut) CHECK_EQ(weft_listener_close(l), 0);
        leave_dir();
    }
    return 0;
}
TEST(net_listen, a_file_stays_as_long_as_its_socket) { run_each(file_stays_with_the_socket); }

/* ---- the ends of accepts ---- */

static atomic_int accepting;
static int accept_until_shut(void *arg) {
    weft_conn *c;
    atomic_fetch_add(&accepting, 1);
    CHECK_EQ(weft_accept(arg, &c, WEFT_FOREVER), WEFT_ECLOSED);
    return 0;
}
static int shut_parked(void *arg) {
    (void)arg;
    for (int local = 0; local < 2; local++) {
        char addr[WEFT_ADDR_MAX];
        weft_listener *l;
        snprintf(addr, sizeof addr, "unix:@weft-net-listen-%d", (int)getpid());
        CHECK_EQ(weft_tcp_listen(&l, local ? addr : "127.0.0.1:0", NULL), 0);
        atomic_store(&accepting, 0);
        weft_scope s;
        weft_scope_begin(&s, NULL);
        for (int k = 0; k < 3; k++) CHECK_EQ(weft_spawn(&s, accept_until_shut, l), 0);
        task_wait_parked(&accepting, 3);
        weft_listener_shutdown(l);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_GE(weft_listener_fd(l), 0); /* it is still there */
        CHECK_EQ(weft_listener_close(l), 0);
    }
    return 0;
}
TEST(net_listen, shutting_down_ends_accepts_that_wait) { run_each(shut_parked); }

static int ask_numbers(void *arg) {
    (void)arg;
    weft_listener *l;
    weft_conn *c;
    int p[2];
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", NULL), 0);
    weft_listener *deaf = weft_listener_ref(l);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_listener_fd(deaf), WEFT_ECLOSED);
    weft_listener_shutdown(deaf); /* nothing of the next socket with its number */
    weft_listener_unref(deaf);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    CHECK_EQ(weft_conn_adopt(&c, p[0]), 0);
    weft_conn *gone = weft_conn_ref(c);
    CHECK_EQ(weft_conn_fd(gone), p[0]);
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(weft_conn_fd(gone), WEFT_ECLOSED);
    weft_conn_unref(gone);
    CHECK_EQ(close(p[1]), 0);
    return 0;
}
TEST(net_listen, one_that_is_closed_has_no_number) { run_each(ask_numbers); }
