/* SPDX-License-Identifier: MIT */
/* Numbers and addresses after a close: what a parked wait, the next call, the next listener find. */
#include <sys/syscall.h>

#include "api/common.h"

/* ---- a wait that is parked at a number which other code has closed, and which nothing else got ---- */

static int far;
static int waited;

static int wait_at_far(void *arg) {
    (void)arg;
    waited = weft_fd_wait(far, WEFT_READABLE, WEFT_FOREVER);
    return 0;
}

enum { BY_WAIT, BY_SELECT, BY_READ, CALLS };
static int call_at_far(int how) {
    char c;
    if (how == BY_WAIT) return weft_fd_wait(far, WEFT_READABLE, WEFT_POLL);
    if (how == BY_SELECT) return weft_select(WEFT_POLL, weft_on_fd(far, WEFT_READABLE));
    return (int)weft_fd_read(far, &c, 1, WEFT_POLL);
}

static int close_under_a_wait(void *arg) {
    (void)arg;
    for (int how = 0; how < CALLS; how++) {
        int fd[2];
        weft_scope s;
        open_far_pair(SOCK_STREAM, fd);
        far = fd[0];
        weft_scope_begin(&s, NULL);
        CHECK_EQ(weft_spawn(&s, wait_at_far, NULL), 0);
        weft_yield();                         /* with one worker and no other task: it is parked now */
        CHECK_EQ(syscall(SYS_close, far), 0); /* by other code, which TSan does not see: the race is what is tested */
        CHECK_EQ(call_at_far(how), -EBADF);
        CHECK_EQ(weft_scope_end(&s), 0);
        CHECK_EQ(waited, WEFT_ECLOSED);
        CHECK_EQ(close(fd[1]), 0);
    }
    return 0;
}
TEST(fd_closed, the_next_call_at_a_closed_number_ends_a_wait_that_is_parked_there) {
    CHECK_EQ(run_on(1, close_under_a_wait, NULL), 0);
}

/* ---- listeners of plain threads without a runtime ---- */

static atomic_int accepting;

static int accept_once(void *l) {
    weft_conn *c;
    atomic_store(&accepting, 1);
    int r = weft_accept(l, &c, WEFT_FOREVER);
    weft_listener_unref(l);
    return r;
}

TEST(fd_closed, an_address_is_free_when_its_listener_was_closed_under_a_thread_without_a_runtime) {
    char path[64], addr[80];
    snprintf(path, sizeof path, "fd_closed.%d.sock", (int)getpid());
    snprintf(addr, sizeof addr, "unix:%s", path);
    for (int i = 0; i < 200; i++) {
        weft_listener *l, *again;
        weft_thread *t;
        int r;
        CHECK_EQ(weft_tcp_listen(&l, addr, NULL), 0);
        atomic_store(&accepting, 0);
        CHECK_EQ(weft_thread_start(&t, accept_once, weft_listener_ref(l), NULL), 0);
        test_until(test_is_set, &accepting); /* it is in the call, or about to be, or asleep: each is a round's case */
        for (int k = i % 20; k > 0; k--) sched_yield();
        CHECK_EQ(weft_listener_close(l), 0);
        CHECK_EQ(weft_tcp_listen(&again, addr, NULL), 0);
        CHECK_EQ(weft_listener_close(again), 0);
        CHECK_EQ(weft_thread_join(t, &r, WEFT_FOREVER), 0);
        CHECK_EQ(r, WEFT_ECLOSED);
        CHECK_NE(access(path, F_OK), 0);
    }
}

TEST(fd_closed, a_listener_that_was_shut_down_hands_out_nothing) {
    const char *addrs[] = {"127.0.0.1:0", "unix:@weft-fd-closed"};
    for (size_t i = 0; i < COUNT(addrs); i++) {
        char where[128];
        weft_listener *l;
        weft_conn *c, *none;
        CHECK_EQ(weft_tcp_listen(&l, addrs[i], NULL), 0);
        CHECK_GT(weft_listener_addr(l, where, sizeof where), 0);
        CHECK_EQ(weft_dial(&c, where, WEFT_FOREVER), 0); /* it stands in line */
        weft_listener_shutdown(l);
        CHECK_EQ(weft_accept(l, &none, WEFT_FOREVER), WEFT_ECLOSED);
        CHECK_EQ(weft_conn_close(c), 0);
        CHECK_EQ(weft_listener_close(l), 0);
    }
}

/* ---- addresses ---- */

TEST(fd_closed, a_star_is_no_host) {
    weft_listener *l;
    CHECK_EQ(weft_tcp_listen(&l, "*:0", NULL), WEFT_EINVAL);
    CHECK(strstr(weft_net_error(), "every address is \":0\""));
}

static int resolve_cancelled(void *arg) {
    weft_scope s;
    weft_addrs at;
    (void)arg;
    weft_scope_begin(&s, NULL);
    weft_scope_cancel(&s);
    CHECK_EQ(weft_resolve("127.0.0.1", "80", &at, WEFT_FOREVER), WEFT_ECANCELED);
    CHECK_EQ(weft_resolve("127.0.0.1", "80", &at, WEFT_POLL), 0);
    return weft_scope_end(&s);
}
TEST(fd_closed, resolving_in_a_cancelled_scope_follows_the_rule_for_deadlines) {
    CHECK_EQ(run_on(1, resolve_cancelled, NULL), 0);
}
