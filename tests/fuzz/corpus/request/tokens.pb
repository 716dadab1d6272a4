
a.b:c-1"
ÿ«:0JngramXbsalt