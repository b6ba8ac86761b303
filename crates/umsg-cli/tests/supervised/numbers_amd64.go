package main

const (
	callOpen    = 240
	callSend    = 242
	callReceive = 243
)
