/* Asks for what there is not. */
#include <umsg/mqueue.h>

int main(void)
{
    return mq_notify((mqd_t)-1, 0);
}
