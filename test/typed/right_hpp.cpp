/* SPDX-License-Identifier: MIT */
/* What compiles: objects that can only be moved, and ends where a channel is. */
#include <memory>
#include <string>
#include <weft.hpp>

static int produce(weft::sender<std::string> out) { return out.send("x"); }
static int consume(weft::receiver<std::string> in) { return in.recv().error(); }

int pass(const weft::chan<std::string> &c, const weft::chan<std::unique_ptr<weft_timer>> &timers,
         const weft::chan<weft_scope *> &scopes);
int pass(const weft::chan<std::string> &c, const weft::chan<std::unique_ptr<weft_timer>> &timers,
         const weft::chan<weft_scope *> &scopes) {
    int err = produce(c) + consume(c) + timers.send(std::make_unique<weft_timer>());
    return err + weft::select(std::chrono::seconds(1), weft::on_recv(scopes, [](weft_scope *) {}),
                              weft::on_send(c, std::string("y")));
}
