// Boost.Interprocess' message_queue behind the functions that plug.rs names.

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>

#include <boost/interprocess/ipc/message_queue.hpp>
#include <boost/version.hpp>

using boost::interprocess::create_only;
using boost::interprocess::message_queue;
using boost::interprocess::permissions;

namespace {

message_queue *of(void *queue) { return static_cast<message_queue *>(queue); }

// The library throws; nothing that it throws may leave this file.
template <class Call> long guarded(Call call) {
    try {
        return call();
    } catch (...) {
        return -EIO;
    }
}

} // namespace

extern "C" {

const char *umsg_bench_about() {
    static char text[64];
    std::snprintf(text, sizeof text, "Boost %d.%d.%d", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100);
    return text;
}

// Unlinked at once: it lives on in the processes that inherit it.
void *umsg_bench_make(const char *, const char *name, unsigned depth, unsigned size, char *why, std::size_t why_size) {
    try {
        message_queue *made = new message_queue(create_only, name, depth, size, permissions(0600));
        message_queue::remove(name);
        return made;
    } catch (const std::exception &error) {
        std::snprintf(why, why_size, "%s", error.what());
        return nullptr;
    }
}

void *umsg_bench_end(void *queue, int, int, char *, std::size_t) { return queue; }

int umsg_bench_send(void *queue, const void *message, std::size_t size) {
    return -guarded([&] { return of(queue)->send(message, size, 0), 0L; });
}

int umsg_bench_try_send(void *queue, const void *message, std::size_t size) {
    return -guarded([&] { return of(queue)->try_send(message, size, 0) ? 0L : -EAGAIN; });
}

long umsg_bench_receive(void *queue, void *buffer, std::size_t size) {
    message_queue::size_type length = 0;
    unsigned priority = 0;
    return guarded([&] { return of(queue)->receive(buffer, size, length, priority), static_cast<long>(length); });
}

long umsg_bench_try_receive(void *queue, void *buffer, std::size_t size) {
    message_queue::size_type length = 0;
    unsigned priority = 0;
    return guarded([&] {
        return of(queue)->try_receive(buffer, size, length, priority) ? static_cast<long>(length) : -EAGAIN;
    });
}

void umsg_bench_drop(void *queue) { delete of(queue); }

} // extern "C"
