/* SPDX-License-Identifier: MIT */
/* Descriptors and connections at their limits: what is asked of one that has gone, that is full, that is given up in the middle; runtimes that end meanwhile. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/common.h"

/* ---- names: the C library's look-up is ours here, and answers when it is told to ---- */

static atomic_int asked, may_answer, answered;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out) {
    (void)host, (void)service, (void)hints;
    atomic_fetch_add(&asked, 1);
    test_until(test_is_set, &may_answer);
    struct sockaddr_in *a = calloc(1, sizeof *a);
    *out = calloc(1, sizeof **out);
    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    **out = (struct addrinfo){.ai_family = AF_INET, .ai_addr = (struct sockaddr *)a, .ai_addrlen = sizeof *a};
    atomic_fetch_add(&answered, 1);
    return 0;
}
void freeaddrinfo(struct addrinfo *a) {
    free(a->ai_addr);
    free(a);
}

/* Every look-up has been answered, and its thread has ended (tools have threads of their own). */
static bool all_answered(void *arg) {
    (void)arg;
    return atomic_load(&answered) == atomic_load(&asked);
}
static void wait_for_look_ups(int threads) {
    test_until(all_answered, NULL);
    if (test_slow_tools() == 1) test_wait_threads(threads);
}

static int look_up(void *arg) {
    weft_addrs at;
    int err = weft_resolve("a.name", "80", &at, WEFT_FOREVER);
    CHECK_EQ(err, (intptr_t)arg);
    CHECK_EQ(at.count, err ? 0 : 1);
    return 0;
}

static int leave_a_look_up(void *arg) {
    weft_addrs at;
    (void)arg;
    CHECK_EQ(weft_go(look_up, as_arg(WEFT_ECANCELED)), 0); /* in flight when the runtime ends */
    CHECK_EQ(weft_resolve("a.name", "80", &at, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    return 0;
}

/* More than there are threads for: those who wait for one are told of the end as well. */
TEST_T(net_ends, runtimes_come_and_go_while_names_are_looked_up, 120) {
    int threads = test_threads();
    for (long i = 0; i < test_scale(200, 40); i++) CHECK_EQ(run_on(1 + (int)(i % 3), leave_a_look_up, NULL), 0);
    thread_wait(&asked, 1);
    atomic_store(&may_answer, 1);
    wait_for_look_ups(threads); /* all of them have ended, with nobody to tell */
    CHECK_EQ(run_on(2, look_up, as_arg(0)), 0);
    wait_for_look_ups(threads);
}

static int answer_late(void *arg) {
    (void)arg;
    atomic_store(&may_answer, 0);
    weft_scope s;
    weft_scope_begin(&s, NULL);
    for (int i = 0; i < 100; i++) CHECK_EQ(weft_spawn(&s, look_up, as_arg(0)), 0); /* more than threads */
    task_wait(&asked, 64);
    atomic_store(&may_answer, 1);
    CHECK_EQ(weft_scope_end(&s), 0);
    CHECK_EQ(atomic_load(&asked), 100);
    return 0;
}
TEST(net_ends, more_names_than_threads_are_looked_up_by_turns) {
    int threads = test_threads();
    CHECK_EQ(run_on(2, answer_late, NULL), 0);
    wait_for_look_ups(threads);
}

static int dial_a_name(void *arg) {
    weft_conn *c;
    (void)arg;
    int err = weft_dial(&c, "a.name:9", WEFT_FOREVER);
    CHECK_EQ(err, WEFT_ECANCELED);
    CHECK(!c);
    return 0;
}
static int cancel_the_name(void *arg) {
    (void)arg;
    weft_scope s;
    weft_scope_begin(&s, NULL);
    CHECK_EQ(weft_spawn(&s, dial_a_name, NULL), 0);
    task_wait_parked(&asked, 1);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_scope_end(&s), 0);
    return 0;
}
TEST(net_ends, a_dial_is_cancelled_while_its_name_is_looked_up) {
    int threads = test_threads(), fds = test_fds();
    CHECK_EQ(run_on(2, cancel_the_name, NULL), 0);
    atomic_store(&may_answer, 1);
    wait_for_look_ups(threads);
    test_wait_fds(fds);
}

/* ---- what is asked of one that is closed ---- */

typedef struct {
    weft_listener *l;
    char addr[WEFT_ADDR_MAX];
    weft_conn *near, *far;
} line;

static void open_line(line *k) {
    CHECK_EQ(weft_tcp_listen(&k->l, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_listener_addr(k->l, k->addr, sizeof k->addr), 0);
    CHECK_EQ(weft_dial(&k->near, k->addr, WEFT_FOREVER), 0);
    CHECK_EQ(weft_accept(k->l, &k->far, WEFT_FOREVER), 0);
}
static void close_line(line *k) {
    CHECK_EQ(weft_conn_close(k->near), 0);
    CHECK_EQ(weft_conn_close(k->far), 0);
    CHECK_EQ(weft_listener_close(k->l), 0);
}

static int ask_the_closed(void *arg) {
    (void)arg;
    line k, other;
    char text[WEFT_ADDR_MAX], c;
    open_line(&k);
    weft_conn *gone = weft_conn_ref(k.near);
    weft_listener *deaf = weft_listener_ref(k.l);
    CHECK_GT(weft_conn_peer(gone, text, sizeof text), 0);
    close_line(&k);
    open_line(&other); /* the same numbers */
    CHECK_EQ(weft_conn_peer(gone, text, sizeof text), WEFT_ECLOSED);
    CHECK_EQ(weft_conn_local(gone, text, sizeof text), WEFT_ECLOSED);
    CHECK_EQ(weft_listener_addr(deaf, text, sizeof text), WEFT_ECLOSED);
    CHECK_EQ(weft_conn_shutdown(gone, SHUT_RDWR), WEFT_ECLOSED);
    CHECK_EQ(weft_conn_read(gone, &c, 1, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_conn_write(gone, "x", 1, WEFT_FOREVER), WEFT_ECLOSED);
    CHECK_EQ(weft_conn_write(other.near, "x", 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_conn_read(other.far, &c, 1, WEFT_FOREVER), 1);
    weft_conn_unref(gone);
    weft_listener_unref(deaf);
    close_line(&other);
    return 0;
}
TEST(net_ends, one_that_is_closed_says_so_and_nothing_of_the_next) { run_each(ask_the_closed); }

/* ---- what is asked for, and is not there, hides nothing that is ---- */

static int ask_for_errors(void *arg) {
    (void)arg;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    char buf[16];
    int r = socket(AF_INET, SOCK_DGRAM, 0), s = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_EQ(bind(r, (struct sockaddr *)&a, sizeof a), 0);
    CHECK_EQ(getsockname(r, (struct sockaddr *)&a, &len), 0);
    CHECK_EQ(weft_fd_recv(r, buf, sizeof buf, 0, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_fd_sendto(s, "one", 3, 0, (struct sockaddr *)&a, sizeof a, WEFT_FOREVER), 3);
    CHECK_EQ(weft_fd_wait(r, WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE);
    CHECK_EQ(weft_sleep_for(WEFT_MS), 0); /* the edge has been told */
    struct iovec v = {buf, sizeof buf};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    CHECK_EQ(weft_fd_recvmsg(r, &m, MSG_ERRQUEUE, WEFT_POLL), WEFT_EAGAIN);
    CHECK_EQ(weft_fd_recvmsg(r, &m, MSG_ERRQUEUE, weft_after(WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_EQ(weft_fd_recv(r, buf, sizeof buf, 0, WEFT_FOREVER), 3);
    CHECK_EQ(weft_fd_close(r), 0);
    CHECK_EQ(weft_fd_recvmsg(r, &m, MSG_ERRQUEUE, WEFT_FOREVER), -EBADF);
    CHECK_EQ(weft_fd_close(s), 0);
    return 0;
}
TEST(net_ends, asking_for_errors_hides_no_data) { run_each(ask_for_errors); }

/* ---- a receiver of datagrams that is full ---- */

static struct sockaddr_un box_addr(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "weft-net-ends-%d", (int)getpid());
    return a;
}
static atomic_int posting;
static int post(void *arg) {
    struct sockaddr_un a = box_addr();
    struct iovec v = {"late", 4};
    struct msghdr m = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &v, .msg_iovlen = 1};
    int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    atomic_fetch_add(&posting, 1);
    CHECK_EQ(arg ? weft_fd_sendmsg(s, &m, 0, WEFT_FOREVER)
                 : weft_fd_sendto(s, "late", 4, 0, (struct sockaddr *)&a, sizeof a, WEFT_FOREVER),
             4);
    CHECK_EQ(weft_fd_close(s), 0);
    return 0;
}
static int full_box(void *arg) {
    (void)arg;
    struct sockaddr_un a = box_addr();
    char buf[16];
    int box = socket(AF_UNIX, SOCK_DGRAM, 0), s = socket(AF_UNIX, SOCK_DGRAM, 0), full = 0, got = 0;
    CHECK_EQ(bind(box, (struct sockaddr *)&a, sizeof a), 0);
    while (weft_fd_sendto(s, "x", 1, 0, (struct sockaddr *)&a, sizeof a, WEFT_POLL) == 1) full++;
    CHECK_EQ(weft_fd_sendto(s, "x", 1, 0, (struct sockaddr *)&a, sizeof a, WEFT_POLL), WEFT_EAGAIN);
    int64_t before = test_cpu_ns();
    CHECK_EQ(weft_fd_sendto(s, "x", 1, 0, (struct sockaddr *)&a, sizeof a, weft_after(600 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_LT(test_cpu_ns() - before, 40 * WEFT_MS * test_slow_tools()); /* it does not go round and round */
    atomic_store(&posting, 0);
    weft_scope scope;
    weft_scope_begin(&scope, NULL);
    CHECK_EQ(weft_spawn(&scope, post, NULL), 0);
    CHECK_EQ(weft_spawn(&scope, post, as_arg(1)), 0);
    task_wait_parked(&posting, 2);
    for (; got < full + 2; got++) CHECK_GT(weft_fd_recv(box, buf, sizeof buf, 0, WEFT_FOREVER), 0);
    CHECK_EQ(weft_scope_end(&scope), 0);
    CHECK_EQ(weft_fd_close(box), 0);
    CHECK_EQ(weft_fd_close(s), 0);
    return 0;
}
TEST(net_ends, a_datagram_waits_for_room_at_its_receiver) { run_each(full_box); }

/* ---- no descriptors left ---- */

static int without_descriptors(void *arg) {
    (void)arg;
    weft_listener *l;
    weft_conn *c;
    weft_udp *u;
    char addr[WEFT_ADDR_MAX];
    struct rlimit was, none;
    CHECK_EQ(weft_tcp_listen(&l, "127.0.0.1:0", NULL), 0);
    CHECK_GT(weft_listener_addr(l, addr, sizeof addr), 0);
    int fds = test_fds();
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
    none = was;
    none.rlim_cur = 0;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK_EQ(weft_dial(&c, addr, WEFT_FOREVER), -EMFILE);
    CHECK_EQ(weft_udp_bind(&u, "127.0.0.1:0", NULL), -EMFILE);
    CHECK_EQ(weft_tcp_listen(&(weft_listener *){NULL}, "127.0.0.1:0", NULL), -EMFILE);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
    test_wait_fds(fds);
    CHECK_EQ(weft_dial(&c, addr, WEFT_FOREVER), 0);
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}
TEST(net_ends, without_descriptors_each_call_says_so) { run_each(without_descriptors); }

/* ---- runtimes that end with everything open ---- */

static line kept;
static int read_for_ever(void *arg) {
    char c;
    ssize_t n = weft_conn_read(arg, &c, 1, WEFT_FOREVER);
    CHECK_EQ(n, WEFT_ECANCELED);
    return 0;
}
static int accept_for_ever(void *arg) {
    weft_conn *c;
    CHECK_EQ(weft_accept(arg, &c, WEFT_FOREVER), WEFT_ECANCELED);
    return 0;
}
static int end_with_all_open(void *arg) {
    char c;
    if (arg) open_line(&kept);
    CHECK_EQ(weft_conn_write(kept.near, "x", 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_conn_read(kept.far, &c, 1, WEFT_FOREVER), 1);
    CHECK_EQ(weft_go(read_for_ever, kept.near), 0);
    CHECK_EQ(weft_go(read_for_ever, kept.far), 0);
    CHECK_EQ(weft_go(read_for_ever, kept.far), 0);
    CHECK_EQ(weft_go(accept_for_ever, kept.l), 0);
    for (int i = 0; i < 5; i++) weft_yield();
    return 0;
}
TEST_T(net_ends, connections_outlive_two_hundred_runtimes, 120) {
    int fds = test_fds();
    for (long i = 0; i < test_scale(200, 20); i++) CHECK_EQ(run_on(1 + (int)(i % 3), end_with_all_open, as_arg(i == 0)), 0);
    close_line(&kept);
    test_wait_fds(fds);
}

/* ---- without a runtime ---- */

/* The other direction is ready all the time: it is not what is waited for. */
TEST(net_ends, a_plain_thread_that_waits_in_the_kernel_does_not_spin) {
    int fd[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    int64_t before = test_thread_cpu_ns();
    CHECK_EQ(weft_fd_wait(fd[0], WEFT_READABLE, weft_after(300 * WEFT_MS)), WEFT_ETIMEDOUT);
    CHECK_LT(test_thread_cpu_ns() - before, 30 * WEFT_MS * test_slow_tools());
    CHECK_EQ(write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_fd_wait(fd[0], WEFT_READABLE, WEFT_FOREVER), WEFT_READABLE);
    CHECK_EQ(close(fd[0]) | close(fd[1]), 0);
}
