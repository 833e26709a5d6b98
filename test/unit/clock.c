/* SPDX-License-Identifier: MIT */
#include "time/clock.h"

#include "test.h"

#define START INT64_C(1000)

static int moves;

static void count_move(void) { moves++; }

TEST(clock, the_real_clock_is_the_kernels) {
    CHECK(!weft__clock_is_fake());
    int64_t before = test_clock_ns(), now = weft_now(), after = test_clock_ns();
    CHECK(before <= now && now <= after);
    CHECK_GT(now, 0);
}

TEST(clock, the_real_clock_goes_on_without_being_asked) {
    int64_t before = weft_now();
    while (weft_now() == before) continue;
    CHECK_GT(weft_now(), before);
}

TEST(clock, a_fake_clock_stands_still_until_it_is_advanced) {
    weft__clock_fake(START);
    CHECK(weft__clock_is_fake());
    CHECK_EQ(weft_now(), START);
    CHECK_EQ(weft__clock_now(), START);
    weft__clock_advance(5);
    CHECK_EQ(weft_now(), START + 5);
    weft__clock_advance(0);
    CHECK_EQ(weft_now(), START + 5);
    weft__clock_fake(0);
    CHECK(!weft__clock_is_fake());
    CHECK_LE(test_clock_ns() - weft_now(), 60 * WEFT_SECOND);
}

TEST(clock, advancing_tells_the_runtime) {
    weft__clock_fake(START);
    weft__clock_advance(1); /* nobody to tell */
    weft__clock_moved = count_move;
    weft__clock_advance(1);
    weft__clock_advance(1);
    CHECK_EQ(moves, 2);
    weft__clock_moved = NULL;
}

TEST(clock, a_fake_clock_ends_at_the_end_of_time) {
    weft__clock_fake(INT64_MAX - 3);
    weft__clock_advance(3);
    CHECK_EQ(weft_now(), INT64_MAX);
    weft__clock_advance(INT64_MAX);
    CHECK_EQ(weft_now(), INT64_MAX);
}

TEST(clock, after_counts_from_now_and_saturates) {
    weft__clock_fake(START);
    CHECK_EQ(weft_after(5).ns, START + 5);
    CHECK_EQ(weft_after(0).ns, START);
    CHECK_EQ(weft_after(-5).ns, START);
    CHECK_EQ(weft_after(INT64_MIN).ns, START);
    CHECK_EQ(weft_after(INT64_MAX - START).ns, INT64_MAX);
    CHECK_EQ(weft_after(INT64_MAX - START + 1).ns, INT64_MAX);
    CHECK_EQ(weft_after(INT64_MAX).ns, INT64_MAX);
}

TEST(clock, at_is_never_for_ever_and_never_a_poll) {
    weft__clock_fake(START);
    CHECK_EQ(weft_at(START + 7).ns, START + 7);
    CHECK_EQ(weft_at(INT64_MAX).ns, INT64_MAX);
    static const int64_t over[] = {0, -1, INT64_MIN + 1, INT64_MIN};
    for (size_t i = 0; i < weft__countof(over); i++) {
        weft_deadline d = weft_at(over[i]);
        CHECK_NE(d.ns, WEFT_FOREVER.ns);
        CHECK_NE(d.ns, WEFT_POLL.ns);
        CHECK_LE(d.ns, weft_now());
    }
}

static int advance_the_real_clock(void *arg) {
    (void)arg;
    weft__clock_advance(1);
    return 0;
}

static int advance_backwards(void *arg) {
    (void)arg;
    weft__clock_fake(START);
    weft__clock_advance(-1);
    return 0;
}

static int fake_before_time(void *arg) {
    (void)arg;
    weft__clock_fake(-1);
    return 0;
}

TEST(clock, misuse_of_the_fake_clock_dies_with_a_sentence) {
    CHECK_DIES(advance_the_real_clock, "only a fake clock can be advanced");
    CHECK_DIES(advance_backwards, "a clock moves forward");
    CHECK_DIES(fake_before_time, "a positive moment");
}
