/* SPDX-License-Identifier: MIT */
/* The configuration: what the environment says, what the program says, and who wins. */
#include <unistd.h>

#include "api/common.h"

/* In a child: the environment is the whole process's. */
struct given {
    const char *variable, *value;
    weft_config cfg;
    int want; /* what the run gives */
};

static int slots(void *arg) {
    (void)arg;
    weft_stats st;
    weft_stats_get(&st);
    return st.slots;
}

static int run_given(void *arg) {
    struct given *g = arg;
    setenv(g->variable, g->value, 1);
    int rc = weft_run(slots, NULL, &g->cfg);
    CHECK_MSG(rc == g->want, "%s=%s gives %d, not %d", g->variable, g->value, rc, g->want);
    return 0;
}

static void check_given(const char *variable, const char *value, weft_config cfg, int want, struct test_child *c) {
    struct given g = {variable, value, cfg, want};
    test_child(run_given, &g, c);
    CHECK_MSG(c->exit_code == 0, "%s=%s: exit %d, signal %d:\n%s", variable, value, c->exit_code, c->signal, c->out);
}

TEST(config, the_environment_fills_in_what_the_program_left_open) {
    struct test_child c;
    weft_config open = {0}, two = {0};
    two.workers = 2;
    check_given("WEFT_WORKERS", "3", open, 3, &c);
    CHECK_STR(c.out, "");
    check_given("WEFT_WORKERS", "3", two, 2, &c); /* the program's own word counts */
}

static int run_null(void *arg) {
    setenv("WEFT_WORKERS", arg, 1);
    CHECK_EQ(weft_run(slots, NULL, NULL), atoi(arg));
    CHECK_EQ(weft_start(NULL), 0);
    CHECK_EQ(weft_block_on(slots, NULL), atoi(arg));
    CHECK_EQ(weft_stop(WEFT_FOREVER), 0);
    unsetenv("WEFT_WORKERS");
    CHECK_EQ(run_on(2, slots, NULL), 2); /* it is read at each start */
    return 0;
}

TEST(config, it_counts_without_any_configuration_too) { CHECK_CHILD_ARG(run_null, "5"); }

/* Uses some more than `arg` bytes of stack. */
static __attribute__((noinline)) int dig(size_t bytes) {
    volatile char frame[1024];
    frame[bytes % 1024] = 1;
    if (bytes < sizeof frame) return 0;
    return dig(bytes - sizeof frame) + frame[bytes % 1024] - 1;
}

static int dig_task(void *arg) { return dig((size_t)(intptr_t)arg); }

static int run_with_stack(void *arg) {
    setenv("WEFT_STACK_SIZE", arg, 1);
    setenv("WEFT_WORKERS", "1", 1);
    return weft_run(dig_task, as_arg(1 << 20), NULL);
}

TEST(config, sizes_take_a_suffix) {
    static const char *const enough[] = {"2097152", "2048k", "2048K", "2M", "2m", "1G"};
    for (size_t i = 0; i < COUNT(enough) - (test_slow_tools() > 1); i++)
        CHECK_CHILD_ARG(run_with_stack, (void *)(uintptr_t)enough[i]);
}

TEST(config, a_size_with_a_suffix_is_the_limit) {
    test_skip_under("the guard of a stack is theirs", "the emulator has no guards");
    test_needs_guards();
    CHECK_DIES_ARG(run_with_stack, (void *)(uintptr_t) "512k", "stack of 512 KiB is used up");
}

TEST(config, every_variable_takes_its_right_values) {
    static const char *const right[][2] = {
        {"WEFT_WORKERS", "0"},
        {"WEFT_WORKERS", "1024"},
        {"WEFT_STACK_SIZE", "0"},
        {"WEFT_STACK_SIZE", "64k"},
        {"WEFT_MAX_THREADS", "0"},
        {"WEFT_MAX_THREADS", "7"},
        {"WEFT_SEARCH", "0"},
        {"WEFT_SEARCH", "1000"},
        {"WEFT_SEARCH", "100ns"},
        {"WEFT_SEARCH", "50us"},
        {"WEFT_SEARCH", "1ms"},
        {"WEFT_SEARCH", "1s"},
        {"WEFT_SEARCH", "off"},
        {"WEFT_SEARCH", "-1"},
        {"WEFT_STACK_MEASURE", "0"},
        {"WEFT_STACK_MEASURE", "1"},
        {"WEFT_STACK_REPORT", "0"},
        {"WEFT_STACK_ADVISED", "1"},
        {"WEFT_STACK_ADVISED", "0"},
        {"WEFT_STACK_GUARDS", "region"},
        {"WEFT_NO_MEMBARRIER", "0"},
        {"WEFT_NO_MEMBARRIER", "1"},
        {"WEFT_NO_EVENTFD", "1"},
        {"WEFT_NO_IO_URING", "1"},
        {"WEFT_NO_IO_URING", "0"},
        {"WEFT_NO_SCHED_SETATTR", "1"},
        {"WEFT_NO_EPOLL_PWAIT2", "1"},
        {"WEFT_NO_NOWAIT", "1"},
        {"WEFT_STACK_GUARDS", "protect"},
        {"WEFT_STACK_GUARDS", "canary"},
    };
    struct test_child c;
    weft_config cfg = {0};
    cfg.workers = 2;
    for (size_t i = 0; i < COUNT(right); i++) {
        check_given(right[i][0], right[i][1], cfg, 2, &c);
        CHECK_STR(c.out, "");
    }
}

TEST(config, a_wrong_value_is_named_and_refuses_the_start) {
    static const char *const wrong[][2] = {
        {"WEFT_WORKERS", ""},           {"WEFT_WORKERS", "two"},       {"WEFT_WORKERS", "2 "},
        {"WEFT_WORKERS", " 2"},         {"WEFT_WORKERS", "+2"},        {"WEFT_WORKERS", "-1"},
        {"WEFT_WORKERS", "1025"},       {"WEFT_WORKERS", "2k"},        {"WEFT_WORKERS", "99999999999999999999"},
        {"WEFT_STACK_SIZE", "2G"},      {"WEFT_STACK_SIZE", "64kb"},   {"WEFT_STACK_SIZE", "64 k"},
        {"WEFT_STACK_SIZE", "k"},       {"WEFT_STACK_SIZE", "0x1000"}, {"WEFT_STACK_SIZE", "9223372036854775807G"},
        {"WEFT_MAX_THREADS", "-3"},     {"WEFT_MAX_THREADS", "many"},  {"WEFT_SEARCH", "20 us"},
        {"WEFT_SEARCH", "-2"},          {"WEFT_SEARCH", "1min"},       {"WEFT_SEARCH", "OFF"},
        {"WEFT_STACK_REPORT", "yes"},   {"WEFT_STACK_MEASURE", "2"},   {"WEFT_STACK_ADVISED", ""},
        {"WEFT_STACK_GUARDS", "pages"}, {"WEFT_STACK_GUARDS", "or"},   {"WEFT_STACK_GUARDS", "region, protect"},
        {"WEFT_NO_MEMBARRIER", "yes"},  {"WEFT_STACK_GUARDS", ""},
    };
    weft_config cfg = {0};
    cfg.workers = 2; /* checked although a field would win */
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct test_child c;
        char said[128];
        check_given(wrong[i][0], wrong[i][1], cfg, WEFT_EINVAL, &c);
        snprintf(said, sizeof said, "weft: %s=\"%s\" in the environment; it must be ", wrong[i][0], wrong[i][1]);
        CHECK_MSG(strstr(c.out, said), "%s=%s: %s", wrong[i][0], wrong[i][1], c.out);
    }
}

static int run_after_a_wrong_one(void *arg) {
    (void)arg;
    setenv("WEFT_WORKERS", "none", 1);
    CHECK_EQ(weft_start(NULL), WEFT_EINVAL);
    CHECK_EQ(weft_stop(WEFT_FOREVER), WEFT_ETERMINATED);
    setenv("WEFT_WORKERS", "2", 1);
    CHECK_EQ(weft_run(slots, NULL, NULL), 2);
    return 0;
}

TEST(config, a_refused_start_does_no_harm) { CHECK_CHILD(run_after_a_wrong_one); }

static int run_bad_flags(void *arg) {
    (void)arg;
    weft_config cfg = {0};
    cfg.flags = 1u << 30;
    return weft_run(slots, NULL, &cfg) == WEFT_EINVAL ? 0 : 1;
}

TEST(config, flags_without_a_meaning_are_refused) {
    struct test_child c;
    test_child(run_bad_flags, NULL, &c);
    CHECK_EQ(c.exit_code, 0);
    CHECK_MSG(strstr(c.out, "0x40000000"), "%s", c.out);
}

static int run_mistyped(void *arg) {
    (void)arg;
    setenv("WEFT_WROKERS", "2", 1);
    setenv("WEFT_TEST_ANYTHING", "2", 1);
    setenv("WEFTER", "2", 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(run_on(2, slots, NULL), 2);
    return 0;
}

TEST(config, a_mistyped_variable_is_named_once) {
    struct test_child c;
    test_child(run_mistyped, NULL, &c);
    CHECK_MSG(c.exit_code == 0, "%s", c.out);
    char *at = strstr(c.out, "WEFT_WROKERS in the environment is no setting");
    CHECK_MSG(at && !strstr(at + 20, "WROKERS"), "%s", c.out);
    CHECK_MSG(!strstr(c.out, "ANYTHING") && !strstr(c.out, "WEFTER"), "%s", c.out);
}

/* ---- WEFT_MAIN ---- */

static int show_args(void *arg) {
    weft_args *a = arg;
    CHECK(weft_self() != 0);
    for (int i = 0; i < a->argc; i++) printf("%s ", a->argv[i]);
    return atoi(a->argv[a->argc - 1]);
}

#define main program_main /* as WEFT_MAIN would make it, beside the harness's own */
int program_main(int argc, char **argv);
WEFT_MAIN(show_args)
#undef main

static int run_program(void *arg) {
    char name[] = "prog", mid[] = "-x";
    char *argv[] = {name, mid, arg, NULL};
    setenv("WEFT_WORKERS", "2", 1);
    return program_main(3, argv);
}

TEST(config, weft_main_passes_the_arguments_and_gives_the_exit_status) {
    static const struct {
        const char *result;
        int status;
        const char *said;
    } runs[] = {{"0", 0, "prog -x 0 "}, {"7", 7, "prog -x 7 "}, {"256", 255, "256"}, {"-5004", 1, "weft: prog: "}};
    for (size_t i = 0; i < COUNT(runs); i++) {
        struct test_child c;
        char result[16];
        snprintf(result, sizeof result, "%s", runs[i].result);
        test_child(run_program, result, &c);
        CHECK_EQ(c.exit_code, runs[i].status);
        CHECK_MSG(strstr(c.out, runs[i].said), "%s", c.out);
    }
}
