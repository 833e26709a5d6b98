/* SPDX-License-Identifier: MIT */
/* Channels of objects, and select with functions.
 *
 * What is trivially copyable goes through a channel of chan.h as it is. Other objects are moved into it and out of it: those that may be moved by
 * copying their bytes take no memory for that, the others a place on the heap each. What nobody has received is destroyed with the channel. */
#ifndef WEFT_CHAN_HPP
#define WEFT_CHAN_HPP

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include <weft/task.hpp>
#include <weft/typed.h>

namespace weft {

/* False for types that must stay where they are; weft's own are known. Specialise it for yours. */
template <class T>
struct sendable : std::bool_constant<!weft__is_one_of<T, WEFT__NOT_SENDABLE_TYPES void>::value> {};

/* True if an object may be moved by copying its bytes and forgetting the old place. Elements that are neither this nor trivially copyable
 * take a place on the heap for their way through a channel. Specialise it for your types. */
template <class T>
struct relocatable : std::is_trivially_copyable<T> {};
template <class T>
struct relocatable<std::unique_ptr<T>> : std::true_type {};
template <class T>
struct relocatable<std::shared_ptr<T>> : std::true_type {};

namespace detail {

enum class form { bytes, relocated, boxed };
template <class T>
inline constexpr form form_of = std::is_trivially_copyable_v<T> ? form::bytes
                                : relocatable<T>::value         ? form::relocated
                                                                : form::boxed;

/* An object whose life begins and ends by hand. */
template <class T>
union place {
    T object;
    place() noexcept {}
    ~place() {}
    void *raw() noexcept {
        return static_cast<void *>(std::addressof(object));
    }
};

/* An element on its way into a channel: moved out of its place, and moved back in the end unless it was sent. */
template <class T, form = form_of<T>>
class outgoing {
  public:
    explicit outgoing(const T &v) noexcept : p_(std::addressof(v)) {}
    const void *data() noexcept {
        return p_;
    }
    void settle(bool) noexcept {}

  private:
    const T *p_;
};

template <class T>
void move_back(T *to, T *from) noexcept {
    to->~T();
    ::new (static_cast<void *>(to)) T(std::move(*from));
}

template <class T>
class outgoing<T, form::relocated> {
  public:
    explicit outgoing(T &v) noexcept : from_(std::addressof(v)) {
        ::new (p_.raw()) T(std::move(v));
    }
    ~outgoing() {
        settle(false);
    }
    outgoing(const outgoing &) = delete;
    outgoing &operator=(const outgoing &) = delete;
    const void *data() noexcept {
        return p_.raw();
    }
    void settle(bool sent) noexcept {
        T *to = std::exchange(from_, nullptr);
        if (!to || sent) return; /* sent: the object is where the bytes are */
        move_back(to, std::addressof(p_.object));
        p_.object.~T();
    }

  private:
    T *from_;
    place<T> p_;
};

template <class T>
class outgoing<T, form::boxed> {
  public:
    explicit outgoing(T &v) noexcept : from_(std::addressof(v)), box_(new (std::nothrow) T(std::move(v))) {}
    ~outgoing() {
        settle(false);
    }
    outgoing(const outgoing &) = delete;
    outgoing &operator=(const outgoing &) = delete;
    /* NULL: no memory. */
    const void *data() noexcept {
        return box_ ? &box_ : nullptr;
    }
    void settle(bool sent) noexcept {
        T *to = std::exchange(from_, nullptr);
        if (!to || !box_ || sent) return; /* sent: the receiver's */
        move_back(to, box_);
        delete box_;
    }

  private:
    T *from_, *box_;
};

/* Where an element arrives. take() or drop() once, after it has. */
template <class T, form = form_of<T>>
class incoming {
  public:
    static constexpr std::size_t size = sizeof(T);
    void *data() noexcept {
        return p_.raw();
    }
    T take() noexcept {
        T v(std::move(p_.object));
        p_.object.~T();
        return v;
    }
    void drop() noexcept {
        p_.object.~T();
    }

  private:
    place<T> p_;
};

template <class T>
class incoming<T, form::boxed> {
  public:
    static constexpr std::size_t size = sizeof(T *);
    void *data() noexcept {
        return &box_;
    }
    T take() noexcept {
        std::unique_ptr<T> own(box_);
        return std::move(*own);
    }
    void drop() noexcept {
        delete box_;
    }

  private:
    T *box_ = nullptr;
};

/* What nobody received is destroyed with the channel: an on_undelivered. Bytes in a channel's buffer may not be aligned as the type wants. */
template <class T>
void destroy(void *elem, void *) noexcept {
    incoming<T> in;
    std::memcpy(in.data(), elem, incoming<T>::size);
    in.drop();
}

[[noreturn]] inline void no_memory() {
#if defined(__cpp_exceptions)
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

/* What all handles of a channel are: a counted reference. */
template <class T>
class handle {
    static_assert(std::is_object_v<T> && !std::is_array_v<T> && !std::is_const_v<T>,
                  "not sendable: elements are objects, no arrays (std::array), no references, not const");

  public:
    explicit operator bool() const noexcept {
        return c_ != nullptr;
    }
    /* The channel of weft.h behind it. Its elements are T only if T is trivially copyable. */
    weft_chan *get() const noexcept {
        return c_.get();
    }
    bool is_closed() const noexcept {
        return weft_chan_is_closed(get());
    }
    std::size_t len() const noexcept {
        return weft_chan_len(get());
    }
    std::size_t cap() const noexcept {
        return weft_chan_cap(get());
    }
    friend bool operator==(const handle &a, const handle &b) noexcept {
        return a.c_ == b.c_;
    }
    friend bool operator!=(const handle &a, const handle &b) noexcept {
        return a.c_ != b.c_;
    }

  protected:
    handle() noexcept = default;
    explicit handle(std::shared_ptr<weft_chan> c) noexcept : c_(std::move(c)) {}
    std::shared_ptr<weft_chan> c_;
};

} // namespace detail

/* An element, or why there is none. */
template <class T>
class result {
  public:
    result(T v) noexcept : v_(std::move(v)) {}
    static result failed(int error) noexcept {
        result r;
        r.error_ = error;
        return r;
    }
    explicit operator bool() const noexcept {
        return v_.has_value();
    }
    /* 0: there is an element. */
    int error() const noexcept {
        return error_;
    }
    T &operator*() noexcept {
        return *v_;
    }
    T *operator->() noexcept {
        return std::addressof(*v_);
    }

  private:
    result() noexcept = default;
    std::optional<T> v_;
    int error_ = 0;
};

namespace detail {

template <class T>
int send(weft_chan *c, outgoing<T> &&out, deadline d) {
    if (!out.data()) return WEFT_ENOMEM;
    int r = weft_chan_send(c, out.data(), d);
    out.settle(r >= 0);
    return r;
}

/* What can be done with an end that sends. */
template <class T, class Self>
class sends {
  public:
    /* Moves the element into the channel. As weft_chan_send: on any error it is where it was. WEFT_ENOMEM: an element that needs a place on the
     * heap got none. */
    int send(T &&v, deadline d = {}) const {
        return detail::send<T>(raw(), outgoing<T>(v), d);
    }
    /* Sends a copy. */
    int send(const T &v, deadline d = {}) const {
        if constexpr (form_of<T> == form::bytes) {
            return weft_chan_send(raw(), std::addressof(v), d);
        } else {
            T copy(v);
            return send(std::move(copy), d);
        }
    }
    int try_send(T &&v) const {
        return send(std::move(v), poll);
    }
    int try_send(const T &v) const {
        return send(v, poll);
    }
    /* As weft_chan_close. */
    int close() const noexcept {
        return weft_chan_close(raw());
    }

  private:
    weft_chan *raw() const noexcept {
        return static_cast<const Self *>(this)->get();
    }
};

template <class T>
result<T> recv(weft_chan *c, deadline d) {
    incoming<T> in;
    int r = weft_chan_recv(c, in.data(), d);
    return r < 0 ? result<T>::failed(r) : result<T>(in.take());
}

/* The elements of a channel until it is closed and drained, or the wait is cancelled. */
template <class T>
class iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = T *;
    using reference = T &;

    iterator() noexcept = default;
    explicit iterator(weft_chan *c) : c_(c) {
        ++*this;
    }
    T &operator*() noexcept {
        return *v_;
    }
    T *operator->() noexcept {
        return std::addressof(*v_);
    }
    iterator &operator++() {
        v_.reset();
        result<T> r = recv<T>(c_, {});
        if (r) v_.emplace(std::move(*r));
        return *this;
    }
    friend bool operator==(const iterator &a, const iterator &b) noexcept {
        return a.v_.has_value() == b.v_.has_value();
    }
    friend bool operator!=(const iterator &a, const iterator &b) noexcept {
        return !(a == b);
    }

  private:
    weft_chan *c_ = nullptr;
    std::optional<T> v_;
};

/* What can be done with an end that receives. */
template <class T, class Self>
class receives {
  public:
    /* As weft_chan_recv. */
    int recv(T &out, deadline d = {}) const {
        if constexpr (form_of<T> == form::bytes) {
            return weft_chan_recv(raw(), std::addressof(out), d);
        } else {
            incoming<T> in;
            int r = weft_chan_recv(raw(), in.data(), d);
            if (r >= 0) out = in.take();
            return r;
        }
    }
    int try_recv(T &out) const {
        return recv(out, poll);
    }
    /* The element, or the error: if (auto v = c.recv(5ms)) use(*v); else look(v.error()); */
    result<T> recv(deadline d = {}) const {
        return detail::recv<T>(raw(), d);
    }
    result<T> try_recv() const {
        return recv(poll);
    }
    /* for (T &v : c): until the channel is closed and drained, or the wait is cancelled. */
    iterator<T> begin() const {
        return iterator<T>(raw());
    }
    iterator<T> end() const noexcept {
        return {};
    }

  private:
    weft_chan *raw() const noexcept {
        return static_cast<const Self *>(this)->get();
    }
};

} // namespace detail

template <class T>
class chan;

/* The sending end of a channel. Copies are ends of the same channel. */
template <class T>
class sender : public detail::handle<T>, public detail::sends<T, sender<T>> {
  public:
    sender() noexcept = default; /* of none */

  private:
    friend class chan<T>;
    explicit sender(std::shared_ptr<weft_chan> c) noexcept : detail::handle<T>(std::move(c)) {}
};

/* The receiving end. */
template <class T>
class receiver : public detail::handle<T>, public detail::receives<T, receiver<T>> {
  public:
    receiver() noexcept = default; /* of none */
    using detail::receives<T, receiver<T>>::end;

  private:
    friend class chan<T>;
    explicit receiver(std::shared_ptr<weft_chan> c) noexcept : detail::handle<T>(std::move(c)) {}
};

/* A channel of objects. A handle, which is copied and moved; the channel goes with the last one, and destroys what nobody received. Elements are moved
 * in and moved out. What is trivially copyable goes through weft_chan_send as it is. */
template <class T>
class chan : public detail::handle<T>, public detail::sends<T, chan<T>>, public detail::receives<T, chan<T>> {
  public:
    /* capacity 0 is a rendezvous. Throws std::bad_alloc. */
    explicit chan(std::size_t capacity = 0) : detail::handle<T>(make(capacity)) {}
    /* No channel: a case of a select with it is disabled. */
    chan(std::nullptr_t) noexcept {}

    sender<T> tx() const noexcept {
        return sender<T>(this->c_);
    }
    receiver<T> rx() const noexcept {
        return receiver<T>(this->c_);
    }
    operator sender<T>() const noexcept {
        return tx();
    }
    operator receiver<T>() const noexcept {
        return rx();
    }
    using detail::receives<T, chan<T>>::end;

  private:
    /* The element is looked at here, and not with the class: it may have ends of its own channel. */
    static std::shared_ptr<weft_chan> make(std::size_t capacity) {
        static_assert(sendable<T>::value, "not sendable: it must stay where it is; send a pointer to it");
        static_assert(std::is_trivially_copyable_v<T> || std::is_nothrow_move_constructible_v<T>,
                      "not sendable: elements are moved, and that must not throw; send a std::unique_ptr to it");
        weft_chan_opts o{};
        o.capacity = capacity;
        if constexpr (!std::is_trivially_copyable_v<T>) o.on_undelivered = detail::destroy<T>;
        weft_chan *c = weft_chan_new_opts(detail::incoming<T>::size, &o);
        if (!c) detail::no_memory();
        return std::shared_ptr<weft_chan>(c, weft_chan_unref);
    }
};

template <class T>
struct relocatable<chan<T>> : std::true_type {};
template <class T>
struct relocatable<sender<T>> : std::true_type {};
template <class T>
struct relocatable<receiver<T>> : std::true_type {};

/* ---- select ---- */

namespace detail {

struct nothing {
    void operator()() const noexcept {}
};

template <class T, class F>
class recv_case {
  public:
    recv_case(weft_chan *c, F f) : c_(c), f_(std::move(f)) {}
    recv_case(const recv_case &) = delete;
    recv_case &operator=(const recv_case &) = delete;
    bool ready() noexcept {
        return true;
    }
    weft_case prepare() noexcept {
        return weft_on_recv(c_, in_.data(), wants_the_end ? &open_ : nullptr);
    }
    void settle(bool) noexcept {}
    void call() {
        if constexpr (wants_the_end) {
            std::optional<T> v;
            if (open_) v.emplace(in_.take());
            f_(std::move(v));
        } else {
            f_(in_.take());
        }
    }

  private:
    static constexpr bool wants_the_end = std::is_invocable_v<F &, std::optional<T>>;
    weft_chan *c_;
    F f_;
    bool open_ = false;
    incoming<T> in_;
};

template <class T, class F>
class send_case {
  public:
    template <class V>
    send_case(weft_chan *c, V &v, F f) : c_(c), f_(std::move(f)), out_(v) {}
    send_case(const send_case &) = delete;
    send_case &operator=(const send_case &) = delete;
    bool ready() noexcept {
        return out_.data() != nullptr;
    }
    weft_case prepare() noexcept {
        return weft_on_send_open(c_, out_.data(), wants_the_end ? &open_ : nullptr);
    }
    void settle(bool done) noexcept {
        out_.settle(done && (open_ || !wants_the_end));
    }
    void call() {
        if constexpr (wants_the_end)
            f_(open_);
        else
            f_();
    }

  private:
    static constexpr bool wants_the_end = std::is_invocable_v<F &, bool> && !std::is_invocable_v<F &>;
    weft_chan *c_;
    F f_;
    bool open_ = false;
    outgoing<T> out_;
};

template <class... Cases>
int select_by(int (*selectv)(weft_case *, size_t, weft_deadline), deadline d, Cases &...cases) {
    static_assert(sizeof...(cases) > 0, "a select without cases: weft::sleep");
    if (!(cases.ready() && ...)) return WEFT_ENOMEM;
    weft_case v[] = {cases.prepare()...};
    int which = selectv(v, sizeof...(cases), d), at = 0;
    (cases.settle(at++ == which), ...);
    at = 0;
    ((at++ == which ? cases.call() : void()), ...);
    return which;
}

} // namespace detail

/* Receive, and call f with the element. If f takes a std::optional<T>, it is called without one when the channel is closed and drained; if it takes a T,
 * select returns WEFT_ECLOSED then. */
template <class T, class F>
detail::recv_case<T, F> on_recv(const receiver<T> &c, F f) {
    return {c.get(), std::move(f)};
}
template <class T, class F>
detail::recv_case<T, F> on_recv(const chan<T> &c, F f) {
    return {c.get(), std::move(f)};
}

/* Send v, and call f. If another case happens, or none, v is where it was before f of that case is
 * called. If f takes a bool, it is called with true; when the channel is closed with false, and v is
 * where it was. If it takes none, select returns WEFT_ECLOSED then. */
template <class T, class V, class F = detail::nothing>
detail::send_case<T, F> on_send(const sender<T> &c, V &&v, F f = {}) {
    static_assert(std::is_same_v<std::remove_cv_t<std::remove_reference_t<V>>, T>, "the element is of the channel's type");
    return {c.get(), v, std::move(f)};
}
template <class T, class V, class F = detail::nothing>
detail::send_case<T, F> on_send(const chan<T> &c, V &&v, F f = {}) {
    static_assert(std::is_same_v<std::remove_cv_t<std::remove_reference_t<V>>, T>, "the element is of the channel's type");
    return {c.get(), v, std::move(f)};
}

/* weft::select(5ms, weft::on_recv(a, [&](int v) { … }), weft::on_send(b, x, [&] { … })): waits until one of the cases can be done, does it, calls its function
 * and returns its index. As weft_selectv; WEFT_ENOMEM also if an element needs a place on the heap and gets none. */
template <class... Cases>
int select(deadline d, Cases &&...cases) {
    return detail::select_by(weft_selectv, d, cases...);
}
/* The same with weft_selectv_ordered: among several cases that can be done, the first. */
template <class... Cases>
int select_ordered(deadline d, Cases &&...cases) {
    return detail::select_by(weft_selectv_ordered, d, cases...);
}

} // namespace weft

#endif
