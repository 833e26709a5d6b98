/* SPDX-License-Identifier: MIT */
/* Tasks from lambdas, and scopes, shields and pins that end with their block. */
#ifndef WEFT_TASK_HPP
#define WEFT_TASK_HPP

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include <weft/base.hpp>
#include <weft/scope.h>
#include <weft/task.h>

namespace weft {

/* ---- callables as tasks ---- */

namespace detail {

template <class F>
int result_of(F &f) {
    using R = std::invoke_result_t<F &>;
    if constexpr (std::is_void_v<R>) {
        f();
        return 0;
    } else {
        static_assert(std::is_convertible_v<R, int> && !std::is_floating_point_v<R> && !std::is_same_v<R, bool>,
                      "a task returns an int (0 or positive is success, negative an error) or nothing");
        return static_cast<int>(f());
    }
}

/* The first exception of several tasks, until somebody has joined them. */
class kept_exception {
  public:
    /* Calls f; an exception is kept, and is WEFT_EPANIC. `catch (...)` would stop panics too, so it is std::exception. */
    template <class F>
    int call(F &f) {
#if defined(__cpp_exceptions)
        try {
            return result_of(f);
        } catch (const std::exception &) {
            if (!any_.exchange(true, std::memory_order_relaxed)) first_ = std::current_exception(); /* the join publishes it */
            return WEFT_EPANIC;
        }
#else
        return result_of(f);
#endif
    }
    bool any() const noexcept {
        return any_.load(std::memory_order_relaxed); /* a hint, or after the join */
    }
    /* After the join. */
    void rethrow() {
        if (first_) std::rethrow_exception(std::exchange(first_, nullptr));
    }
    /* After the join, where nobody wants it. */
    void report() noexcept;

  private:
    std::atomic<bool> any_{false};
    std::exception_ptr first_;
};

inline void kept_exception::report() noexcept {
#if defined(__cpp_exceptions)
    if (!first_) return;
    weft_panic_info info{};
    info.task = weft_self();
    try {
        std::rethrow_exception(std::exchange(first_, nullptr));
    } catch (const std::exception &e) {
        std::snprintf(info.message, sizeof info.message, "a child's exception, which nobody asked for: %s", e.what());
    }
    weft_panic_report(&info);
#endif
}

/* A callable of somebody who waits until it has been called. */
template <class F>
struct lent {
    F &f;
    kept_exception kept;

    explicit lent(F &function) : f(function) {}
    static int enter(void *self) {
        auto *l = static_cast<lent *>(self);
        return l->kept.call(l->f);
    }
    static int enter_plainly(void *self) {
        return result_of(static_cast<lent *>(self)->f);
    }
    int finish(int result) {
        kept.rethrow();
        return result;
    }
};

/* A callable that goes to the task: its bytes if that is all there is to it, else an object on the heap. */
template <class Job>
inline constexpr bool is_bytes = std::is_trivially_copyable_v<Job> && alignof(Job) <= alignof(std::max_align_t);

template <class Job>
int enter_bytes(void *job) {
    return (*static_cast<Job *>(job))();
}
template <class Job>
int enter_box(void *job) {
    std::unique_ptr<Job> own(static_cast<Job *>(job));
    return (*own)();
}

template <class F>
struct detached_job {
    F f;
    int operator()() {
        return result_of(f);
    }
};

} // namespace detail

/* Starts the runtime, runs f as its first task, stops the runtime. As weft_run. Gives f's exception back. */
template <class F>
int run(F &&f, const weft_config *config = nullptr) {
    detail::lent<std::remove_reference_t<F>> l(f);
    return l.finish(weft_run(l.enter, &l, config));
}

/* From a plain thread: runs f as a task and waits for it. As weft_block_on. Gives f's exception back. */
template <class F>
int block_on(F &&f) {
    detail::lent<std::remove_reference_t<F>> l(f);
    return l.finish(weft_block_on(l.enter, &l));
}

/* Calls f here, under a deadline. As weft_call. Gives f's exception back. */
template <class F>
int call(F &&f, deadline d) {
    detail::lent<std::remove_reference_t<F>> l(f);
    return l.finish(weft_call(l.enter, &l, d));
}

/* Calls f here and contains its panics and all its exceptions: WEFT_EPANIC, and *info says more. As weft_try. */
template <class F>
int attempt(F &&f, weft_panic_info *info = nullptr) {
    detail::lent<std::remove_reference_t<F>> l(f);
    return weft_try(l.enter_plainly, &l, info);
}

/* Calls f(lo, hi) for parts of [0, n) on all cores. As weft_parallel_for. Gives the first exception back; what was not begun by then is
 * left out. */
template <class F>
int parallel_for(std::size_t n, F &&f, std::size_t grain = 0) {
    struct loop {
        std::remove_reference_t<F> &f;
        detail::kept_exception kept;
        static void part(std::size_t lo, std::size_t hi, void *self) {
            auto *l = static_cast<loop *>(self);
            auto body = [l, lo, hi] { l->f(lo, hi); };
            if (!l->kept.any()) (void)l->kept.call(body);
        }
    } l{f, {}};
    int r = weft_parallel_for(n, grain, loop::part, &l);
    l.kept.rethrow();
    return r;
}

/* Starts f detached, in the root scope. As weft_go: its exceptions are panics. */
template <class F>
int go(F &&f) {
    using job = detail::detached_job<std::decay_t<F>>;
    if constexpr (detail::is_bytes<job>) {
        job j{std::forward<F>(f)};
        return weft_go_copy(detail::enter_bytes<job>, &j, sizeof j);
    } else {
        std::unique_ptr<job> j(new job{std::forward<F>(f)});
        int r = weft_go(detail::enter_box<job>, j.get());
        if (r == 0) (void)j.release(); /* the task's */
        return r;
    }
}

/* A task with a handle. The task goes on when the handle goes. */
class task {
  public:
    task() noexcept = default;
    task(task &&other) noexcept : t_(std::exchange(other.t_, nullptr)) {}
    task &operator=(task &&other) noexcept {
        if (this != &other) weft_task_unref(std::exchange(t_, std::exchange(other.t_, nullptr)));
        return *this;
    }
    ~task() {
        weft_task_unref(t_);
    }

    /* Starts f in the root scope, instead of what the handle stood for. As weft_task_start: its exceptions are panics. */
    template <class F>
    int start(F &&f, const weft_task_opts *opts = nullptr) {
        using job = detail::detached_job<std::decay_t<F>>;
        std::unique_ptr<job> j(new job{std::forward<F>(f)});
        weft_task *t = nullptr;
        int r = weft_task_start(&t, detail::enter_box<job>, j.get(), opts);
        if (r != 0) return r;
        (void)j.release(); /* the task's */
        weft_task_unref(std::exchange(t_, t));
        return 0;
    }
    /* As weft_task_join; WEFT_EINVAL: there is no task. On success the handle is empty. */
    int join(int *result = nullptr, deadline d = {}) {
        if (!t_) return WEFT_EINVAL;
        int r = weft_task_join(t_, result, d);
        if (r == 0) t_ = nullptr;
        return r;
    }
    void cancel() noexcept {
        if (t_) weft_task_cancel(t_);
    }
    uint64_t id() const noexcept {
        return t_ ? weft_task_id(t_) : 0;
    }
    explicit operator bool() const noexcept {
        return t_ != nullptr;
    }
    weft_task *get() const noexcept {
        return t_;
    }

  private:
    weft_task *t_ = nullptr;
};

/* ---- scopes ---- */

/* weft_scope_opts, one by one: weft::scope s(weft::scope_options().limit(4).within(5s)); */
class scope_options {
  public:
    scope_options &within(deadline d) noexcept {
        o_.deadline = d;
        return *this;
    }
    scope_options &limit(int children) noexcept {
        o_.limit = children;
        return *this;
    }
    scope_options &keep_going() noexcept {
        o_.on_error = WEFT_KEEP_GOING;
        return *this;
    }
    scope_options &results() noexcept {
        o_.results = true;
        return *this;
    }
    operator const weft_scope_opts &() const noexcept {
        return o_;
    }

  private:
    weft_scope_opts o_{};
};

/* A scope that ends with its block, at the latest. If an exception leaves the block, its children are cancelled first. */
class scope {
  public:
    scope() {
        weft_scope_begin(&s_, nullptr);
    }
    explicit scope(const weft_scope_opts &opts) {
        weft_scope_begin(&s_, &opts);
    }
    ~scope() {
        if (ended_) return;
        bool thrown = std::uncaught_exceptions() > uncaught_;
        if (thrown) weft_scope_cancel(&s_);
        (void)weft_scope_end(&s_);
        if (!thrown) kept_.report();
    }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

    /* Starts f as a task of the scope; f is moved into it. As weft_spawn: refused, it is destroyed without being called. */
    template <class F>
    int spawn(F &&f) {
        using job = child<std::decay_t<F>>;
        if constexpr (detail::is_bytes<job>) {
            job j{&kept_, std::forward<F>(f)};
            return weft_spawn_copy(&s_, detail::enter_bytes<job>, &j, sizeof j);
        } else {
            std::unique_ptr<job> j(new job{&kept_, std::forward<F>(f)});
            int r = weft_spawn(&s_, detail::enter_box<job>, j.get());
            if (r == 0) (void)j.release(); /* the task's */
            return r;
        }
    }
    /* As weft_spawn_opts. */
    template <class F>
    int spawn(const weft_task_opts &opts, F &&f) {
        using job = child<std::decay_t<F>>;
        std::unique_ptr<job> j(new job{&kept_, std::forward<F>(f)});
        int r = weft_spawn_opts(&s_, detail::enter_box<job>, j.get(), &opts);
        if (r == 0) (void)j.release(); /* the task's */
        return r;
    }
    /* Waits until every child has ended, and ends the scope. As weft_scope_end; if a child let an exception out, the first one is thrown. Without
     * a join, the end of the block reports it as a panic. Once. */
    int join() {
        if (ended_) return WEFT_EINVAL;
        ended_ = true;
        int r = weft_scope_end(&s_);
        kept_.rethrow();
        return r;
    }
    void cancel() noexcept {
        weft_scope_cancel(&s_);
    }
    /* Waits until no child is left; the scope stays open. As weft_scope_wait. */
    int wait(deadline d = {}) {
        return weft_scope_wait(&s_, d);
    }
    /* As weft_scope_set_deadline. */
    void set_deadline(deadline d) {
        weft_scope_set_deadline(&s_, d);
    }
    /* As weft_scope_wait_any. */
    int wait_any(int *result = nullptr, deadline d = {}) {
        return weft_scope_wait_any(&s_, result, d);
    }
    weft_scope *get() noexcept {
        return &s_;
    }

  private:
    template <class F>
    struct child {
        detail::kept_exception *kept;
        F f;
        int operator()() {
            return kept->call(f);
        }
    };

    weft_scope s_;
    detail::kept_exception kept_;
    int uncaught_ = std::uncaught_exceptions();
    bool ended_ = false;
};

/* No cancellation from outside while it lives. As weft_shield_begin; false: there was no memory for it. */
class shield {
  public:
    explicit shield(deadline d = {}) : up_(weft_shield_begin(d) == 0) {}
    ~shield() {
        if (up_) weft_shield_end();
    }
    shield(const shield &) = delete;
    shield &operator=(const shield &) = delete;
    explicit operator bool() const noexcept {
        return up_;
    }

  private:
    bool up_;
};

/* The task stays on its thread while it lives. As weft_pin. */
class pin {
  public:
    pin() {
        weft_pin();
    }
    ~pin() {
        weft_unpin();
    }
    pin(const pin &) = delete;
    pin &operator=(const pin &) = delete;
};

} // namespace weft

#endif
