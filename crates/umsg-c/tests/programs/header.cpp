// The headers from C++, with a queue that closes itself.
#include <umsg/mqueue.h>

#include <cstring>
#include <iostream>
#include <stdexcept>

class Queue {
public:
    Queue(const char *name, int flags, const umsg_mq_options &options)
        : handle_(umsg_mq_open_with(name, flags, 0600, &options))
    {
        if (handle_ == (umsg_mqd_t)-1)
            throw std::runtime_error(umsg_last_error());
    }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;
    ~Queue() { mq_close(handle_); }
    operator mqd_t() const { return handle_; }

private:
    mqd_t handle_;
};

int main()
{
    umsg_mq_options options{};
    options.size = sizeof options;
    options.message_size = 16;
    char buffer[16];
    {
        Queue queue("/cpp", O_CREAT | O_RDWR, options);
        if (mq_send(queue, "hello", 5, 1) != 0 || mq_receive(queue, buffer, sizeof buffer, nullptr) != 5)
            return 1;
    }
    try {
        Queue missing("/missing", O_RDWR, options);
        return 1;
    } catch (const std::runtime_error &error) {
        std::cout << error.what() << '\n';
    }
    return mq_unlink("/cpp") == 0 && std::memcmp(buffer, "hello", 5) == 0 ? 0 : 1;
}
