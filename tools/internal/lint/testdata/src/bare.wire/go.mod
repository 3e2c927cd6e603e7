module bare.wire
