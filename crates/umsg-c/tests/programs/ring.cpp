// Rings from C++, with ends that free themselves.
#include <umsg/ring.h>

#include <cstring>
#include <iostream>
#include <stdexcept>
#include <thread>

class Ring {
public:
    Ring() : ring_(umsg_ring_create(nullptr))
    {
        if (ring_ == nullptr)
            throw std::runtime_error(umsg_last_error());
    }
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;
    ~Ring() { umsg_ring_free(ring_); }
    operator struct umsg_ring *() const { return ring_; }

private:
    struct umsg_ring *ring_;
};

int main()
{
    Ring ring;
    struct umsg_ring_sender *sender = umsg_ring_sender_of(ring);
    std::thread thread([sender] {
        const umsg_ring_post post = umsg_ring_post_of(7, "work", 4);
        umsg_ring_send(sender, &post);
        umsg_ring_sender_free(sender);
    });
    int seen = 0;
    while (seen == 0) {
        if (umsg_ring_wait(ring, 1, nullptr) < 1)
            return 1;
        umsg_ring_drain(
            ring,
            [](const umsg_ring_message *message, void *argument) {
                if (message->user_data == 7 && std::memcmp(message->payload, "work", 4) == 0)
                    ++*static_cast<int *>(argument);
            },
            &seen);
    }
    thread.join();
    std::cout << seen << " message\n";
    return seen == 1 ? 0 : 1;
}
