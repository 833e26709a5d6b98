/* SPDX-License-Identifier: MIT */
/* Many sends in one system call. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "os/uring.h"
#include "dear.h"
#include "test.h"

enum { SENDS = WEFT_URING_SENDS };
static weft__uring ring;
static weft__send sends[SENDS], *list[SENDS];
static int fd[SENDS][2];
static char text[SENDS];

static void open_ring(void) {
    int err = weft__uring_open(&ring);
    CHECK_EQ(weft__uring_is_open(&ring), !err);
    CHECK_MSG(!err || err == -ENOSYS || err == -EPERM || err == -EACCES, "%d", err);
    if (err) test_skip("io_uring is not to be had here");
}
static void open_pairs(void) {
    for (int i = 0; i < SENDS; i++) {
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]), 0);
        text[i] = (char)('A' + i);
        sends[i] = (weft__send){fd[i][0], &text[i], 1, 0};
        list[i] = &sends[i];
    }
}
static void close_pairs(void) {
    for (int i = 0; i < SENDS; i++)
        for (int k = 0; k < 2; k++) close(fd[i][k]);
}
static void check_heard(int i) {
    char c = 0;
    CHECK_EQ(sends[i].got, 1);
    CHECK_EQ(recv(fd[i][1], &c, 1, MSG_DONTWAIT), 1);
    CHECK_EQ(c, text[i]);
    CHECK_EQ(recv(fd[i][1], &c, 1, MSG_DONTWAIT), -1);
}

/* As it is before. */
TEST(uring, tells_what_it_gains) {
    int64_t ns = INT64_MAX;
    open_ring();
    open_pairs();
    for (int round = 0; round < 10; round++) {
        CHECK_EQ(weft__uring_gain(&ring, &ns), 0);
        CHECK(ns > -WEFT_SECOND && ns < WEFT_SECOND);
        CHECK_EQ(weft__uring_send(&ring, list, SENDS), 0);
        for (int i = 0; i < SENDS; i++) check_heard(i);
    }
    printf("an entry takes %lld ns less than a system call\n", (long long)ns);
    close_pairs();
    weft__uring_close(&ring);
}
TEST(uring, gains_more_where_system_calls_are_dear) {
    int64_t before, after;
    open_ring();
    CHECK_EQ(weft__uring_gain(&ring, &before), 0);
    if (!make_calls_dear()) test_skip("no filter is to be had here");
    CHECK_EQ(weft__uring_gain(&ring, &after), 0);
    printf("%lld ns, with a filter %lld\n", (long long)before, (long long)after);
    CHECK_GT(after, before + 100);
    weft__uring_close(&ring);
}
TEST(uring, what_it_gains_is_not_told_if_it_fails) {
    int64_t ns;
    open_ring();
    weft__fault_arm(3, false);
    CHECK_EQ(weft__uring_gain(&ring, &ns), -ENOMEM);
    CHECK(!weft__uring_is_open(&ring));
}

TEST(uring, sends_all_of_them) {
    int fds = test_fds();
    open_ring();
    open_pairs();
    for (int round = 0; round < 100; round++) { /* the rings come round */
        int n = 1 + round * 7 % SENDS;
        CHECK_EQ(weft__uring_send(&ring, list, n), 0);
        for (int i = 0; i < n; i++) check_heard(i);
    }
    close_pairs();
    weft__uring_close(&ring);
    CHECK(!weft__uring_is_open(&ring));
    CHECK_EQ(test_fds(), fds);
}

TEST(uring, each_gets_its_own_result) {
    char junk[4096] = {0};
    open_ring();
    open_pairs();
    close(fd[0][1]);
    sends[1].fd = -1;
    while (send(fd[2][0], junk, sizeof junk, MSG_DONTWAIT) > 0) continue;
    sends[3].buf = (void *)(uintptr_t)8;
    CHECK_EQ(weft__uring_send(&ring, list, SENDS), 0);
    CHECK_EQ(sends[0].got, -EPIPE); /* and no signal */
    CHECK_EQ(sends[1].got, -EBADF);
    CHECK_EQ(sends[2].got, -EAGAIN); /* it did not wait, though the descriptor would */
    CHECK_EQ(sends[3].got, -EFAULT);
    for (int i = 4; i < SENDS; i++) check_heard(i);
    fd[0][1] = dup(fd[0][0]);
    close_pairs();
    weft__uring_close(&ring);
}

/* Somebody has closed its number, and `other` has it now. */
static void check_lost(int number, int other) {
    open_pairs();
    CHECK_EQ(dup2(other, number), number);
    CHECK_LT(weft__uring_send(&ring, list, 3), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(sends[i].got, -EINPROGRESS);
    CHECK(!weft__uring_is_open(&ring));
    CHECK_GE(fcntl(number, F_GETFD), 0); /* it is not ours to close */
    CHECK_EQ(close(number), 0);
    close_pairs();
}
TEST(uring, a_number_that_was_closed_is_not_closed_again) {
    open_ring();
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    check_lost(ring.fd, zero);
    CHECK_EQ(close(zero), 0);
}
TEST(uring, nor_is_it_if_another_ring_has_it) {
    weft__uring other;
    open_ring();
    CHECK_EQ(weft__uring_open(&other), 0);
    check_lost(ring.fd, other.fd);
    open_pairs();
    CHECK_EQ(weft__uring_send(&other, list, SENDS), 0);
    for (int i = 0; i < SENDS; i++) check_heard(i);
    close_pairs();
    weft__uring_close(&other);
}

TEST(uring, what_cannot_be_sent_is_said) {
    int fds = test_fds();
    open_ring();
    open_pairs();
    weft__fault_arm(1, false);
    CHECK_EQ(weft__uring_send(&ring, list, 3), -weft__fault_errno);
    weft__fault_arm(0, false);
    for (int i = 0; i < 3; i++) CHECK_EQ(sends[i].got, -EINPROGRESS);
    CHECK(!weft__uring_is_open(&ring));
    close_pairs();
    CHECK_EQ(test_fds(), fds);
    for (int nth = 1; nth <= 3; nth++) { /* the call, and two mappings */
        weft__fault_arm(nth, false);
        CHECK_EQ(weft__uring_open(&ring), -weft__fault_errno);
        weft__fault_arm(0, false);
        CHECK(!weft__uring_is_open(&ring));
        CHECK_EQ(test_fds(), fds);
    }
}

TEST(uring, a_child_has_the_number_and_not_the_memory) {
    int status = -1;
    test_skip_under("a child of a process under the tools ends otherwise", NULL);
    open_ring();
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        int fds = test_fds();
        CHECK_EQ(msync(ring.entries, 1, MS_ASYNC), -1);
        CHECK_EQ(errno, ENOMEM);
        weft__uring_forget(&ring);
        CHECK_EQ(test_fds(), fds - 1);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    weft__uring_close(&ring);
}
