# How `red.csv` and `red-wait.csv` were made, by ns-2 2.35 (Debian's `ns2`): ns red.tcl false > red.csv, and
# with true the other
#
# 24 TCP flows through RED as its paper has it, with small windows, so that the queue never runs empty: ns-2 lets
# a packet pass that finds less than two, which the paper does not. A line for each packet that came to
# the queue: packets that waited, seconds for which nothing had been waiting or sent, the average that RED then
# had, what it drew if it did, and 1 if the packet was dropped. Once all have begun RED is the only one that
# draws, so a second generator with the same seed gives its draws. It makes none for a packet that
# finds the average above the lower threshold for the first time.
set seed 7
set min 20; set max 60; set limit 100
set rate 10e6
set ns [new Simulator]
$ns rtproto Static
set draws [new RNG]
$draws seed $seed
Agent/TCP set packetSize_ 1460
Agent/TCP set window_ 8
Agent/TCP set overhead_ 0
Queue/RED set thresh_ $min
Queue/RED set maxthresh_ $max
Queue/RED set q_weight_ 0.002
Queue/RED set linterm_ 10
Queue/RED set gentle_ true
Queue/RED set wait_ [lindex $argv 0]
Queue/RED set mean_pktsize_ 1500
Queue/RED set bytes_ false
Queue/RED set queue_in_bytes_ false
Queue/RED set adaptive_ 0
set near [$ns node]
set far [$ns node]
$ns duplex-link $near $far $rate 25ms RED
$ns queue-limit $near $far $limit
$ns queue-limit $far $near 100000
exec mkdir -p /tmp/longhaul-red
set events [open /tmp/longhaul-red/events w]
$ns trace-queue $near $far $events
set red [[$ns link $near $far] queue]
set averages [open /tmp/longhaul-red/averages w]
$red trace ave_
$red attach $averages
for {set i 0} {$i < 24} {incr i} {
  set tcp [new Agent/TCP/Sack1]; set sink [new Agent/TCPSink/Sack1]
  $ns attach-agent $near $tcp; $ns attach-agent $far $sink; $ns connect $tcp $sink
  set ftp [new Application/FTP]; $ftp attach-agent $tcp
  $ns at [expr 0.001 * $i] "$ftp start"
}
proc finish {} {
  global events averages
  close $events; close $averages
  tell
  exit 0
}
proc tell {} {
  global draws min max rate
  # An average for each packet, unless it stayed at nothing.
  set found [open /tmp/longhaul-red/averages]
  set waiting 0; set free 0; set above 0; set average 0; set line {}
  set file [open /tmp/longhaul-red/events]
  while {[gets $file event] >= 0} {
    lassign $event kind time from to type size
    if {$kind eq "+"} {
      if {$line ne {}} { puts "$line,0" }
      if {$average > 0 || $waiting > 0} { set average [lindex [gets $found] 2] }
      set idle [expr {$waiting == 0 && $time > $free ? $time - $free : 0}]
      set draw {}
      if {$average >= $min && $waiting > 1} {
        if {$average >= 2 * $max} {
        } elseif {!$above} { set above 1
        } else { set draw [format %.9f [$draws uniform 0 1]] }
      } else { set above 0 }
      set line "$waiting,[format %.9g $idle],$average,$draw"
      incr waiting
    } elseif {$kind eq "-"} {
      incr waiting -1
      set free [expr $time + 8.0 * $size / $rate]
    } elseif {$kind eq "d"} {
      incr waiting -1
      puts "$line,1"; set line {}
    }
  }
}
$ns at 5 finish
# Whoever starts has drawn too.
$ns at 0.07 "$defaultRNG seed $seed"
$ns run
