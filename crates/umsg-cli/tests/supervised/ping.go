// A static program that uses queues by system calls of its own: a goroutine answers each message of another one.
package main

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

type attributes struct {
	flags, depth, size, messages int64
	rest                         [4]int64
}

func fail(what string, errno syscall.Errno) {
	if errno != 0 {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, errno)
		os.Exit(1)
	}
}

func open(name string) uintptr {
	text, _ := syscall.BytePtrFromString(name)
	wanted := attributes{depth: 4, size: 16}
	queue, _, errno := syscall.Syscall6(callOpen, uintptr(unsafe.Pointer(text)),
		syscall.O_RDWR|syscall.O_CREAT, 0600, uintptr(unsafe.Pointer(&wanted)), 0, 0)
	fail("mq_open", errno)
	return queue
}

func send(queue uintptr, text string) {
	bytes := []byte(text)
	_, _, errno := syscall.Syscall6(callSend, queue, uintptr(unsafe.Pointer(&bytes[0])), uintptr(len(bytes)), 3, 0, 0)
	fail("mq_timedsend", errno)
}

func receive(queue uintptr) string {
	var room [16]byte
	for {
		length, _, errno := syscall.Syscall6(callReceive, queue, uintptr(unsafe.Pointer(&room[0])), 16, 0, 0, 0)
		// The runtime preempts goroutines by signals.
		if errno != syscall.EINTR {
			fail("mq_timedreceive", errno)
			return string(room[:length])
		}
	}
}

func main() {
	there, back := open("there"), open("back")
	go func() {
		for {
			send(back, receive(there)+"!")
		}
	}()
	for i := 0; i < 200; i++ {
		text := fmt.Sprint(i)
		send(there, text)
		if answer := receive(back); answer != text+"!" {
			fmt.Fprintf(os.Stderr, "%q\n", answer)
			os.Exit(1)
		}
	}
	fmt.Println("answered")
}
