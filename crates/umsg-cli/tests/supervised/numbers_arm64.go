package main

const (
	callOpen    = 180
	callSend    = 182
	callReceive = 183
)
